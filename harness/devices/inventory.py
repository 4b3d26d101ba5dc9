"""The physical devices of this machine, as far as a plan needs them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from harness.devices.bus import without_driver
from harness.devices.cores import allowed_cpus, usable_cores
from harness.devices.hosts import Host
from harness.devices.name import DeviceName
from harness.devices.nvidia import (
    Card,
    cuda_uuids,
    match_cards,
    nvml_error,
    read_cards,
    silent_cards,
    visible_cards,
)


@dataclass(frozen=True, slots=True)
class PhysicalGpu:
    """A GPU that TensorFlow can use. ``physical`` is TensorFlow's name, such as ``/physical_device:GPU:0``.

    Memory is in MiB, ``None`` where it is unknown.
    """

    physical: str
    model: str | None = None
    uuid: str | None = None
    compute_capability: str | None = None
    total_mib: int | None = None
    free_mib: int | None = None

    def __str__(self) -> str:
        short = DeviceName.parse(self.physical.removeprefix("/physical_device:")).short
        facts = [self.model] if self.model else []
        if self.free_mib is not None and self.total_mib is not None:
            facts.append(f"{self.free_mib:,} of {self.total_mib:,} MiB free")
        return f"{short} ({', '.join(facts)})" if facts else short


@dataclass(frozen=True, slots=True)
class Inventory:
    """The available devices. ``unusable`` names GPUs that the driver has and TensorFlow does not.

    Those that ``CUDA_VISIBLE_DEVICES`` hides are not missed.
    """

    gpus: tuple[PhysicalGpu, ...] = ()
    unusable: tuple[str, ...] = ()
    #: A CPU of each physical core that this process may use, and how many CPUs it may use in all.
    cores: tuple[int, ...] = ()
    cpus_allowed: int = 0
    #: The hosts of a cluster, where the spec names one.
    hosts: tuple[Host, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The devices, one text each, for messages."""
        lost = tuple(f"{name} (seen by the driver, but not by TensorFlow)" for name in self.unusable)
        return ("CPU:0", *(str(gpu) for gpu in self.gpus), *lost)


def read_inventory(tensorflow: Any) -> Inventory:
    """Look at the machine. TensorFlow's runtime is not started."""
    physical = tensorflow.config.list_physical_devices("GPU")
    cards = read_cards()
    matched = match_cards(len(physical), cards, cuda_uuids() if physical else ())
    gpus = []
    for device, card in zip(physical, matched, strict=True):
        details = tensorflow.config.experimental.get_device_details(device)
        capability = details.get("compute_capability")
        gpus.append(
            PhysicalGpu(
                physical=device.name,
                model=card.name if card else details.get("device_name"),
                uuid=card.uuid if card else None,
                compute_capability=".".join(str(part) for part in capability) if capability else None,
                total_mib=card.total_mib if card else None,
                free_mib=card.free_mib if card else None,
            )
        )
    return Inventory(
        tuple(gpus),
        unusable=_unusable(cards) if not physical else (),
        cores=usable_cores(),
        cpus_allowed=len(allowed_cpus()),
    )


def _unusable(cards: tuple[Card, ...]) -> tuple[str, ...]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    silent = silent_cards() if visible is None else ()
    broken = nvml_error() if visible is None else None
    driverless = without_driver() if visible is None else ()
    return (
        *(card.name for card in visible_cards(cards, visible)),
        *(f"GPU {card.index} ({card.error})" for card in silent),
        *((f"GPUs that NVML cannot count ({broken})",) if broken is not None else ()),
        *(f"GPU at PCI {address} (NVIDIA's driver is not loaded)" for address in driverless),
    )
