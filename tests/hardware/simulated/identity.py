"""The cards of a simulated machine as the driver and TensorFlow name them."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata

from harness.devices.described.description import Description
from harness.devices.described.order import (
    BOARD_PART,
    VBIOS,
    kernels_of,
    order_of,
    pci_of,
    serial_of,
    uuid_of,
)
from harness.devices.device import Device, Devices
from harness.hardware.profile import profile_for
from harness.hardware.software.installed import Software
from harness.records import Card
from simulated.models import model_of

#: Memory of each card that the driver reserves.
DRIVER_BYTES = 512 * 2**20
_DEVICE = "/job:localhost/replica:0/task:0/device:GPU:{}"


@dataclass(frozen=True, slots=True)
class Slots:
    """Which card is in which slot. ``present`` is in the driver's order, ``cards`` in TensorFlow's, both with slots."""

    present: tuple[tuple[int, Card], ...]
    cards: tuple[tuple[int, Card], ...]


def slots(description: Description) -> Slots:
    """Return the cards without those that are absent, missing or hidden by ``CUDA_VISIBLE_DEVICES``."""
    order = order_of(description)
    by_driver = list(order.by_driver)
    cards = tuple(
        (slot, _card(description, slot, by_driver.index(slot), at)) for at, slot in enumerate(order.by_tensorflow)
    )
    by_slot = dict(cards)
    present = tuple(
        (slot, by_slot.get(slot) or _card(description, slot, index, None)) for index, slot in enumerate(by_driver)
    )
    return Slots(present, cards)


def devices(description: Description, spec: str = "gpu") -> Devices:
    """Return the devices as TensorFlow would name them."""
    made = [
        Device(_name(card), "gpu", f"/physical_device:GPU:{at}") for at, (_, card) in enumerate(_cards(description))
    ]
    return Devices(made, spec=spec, reason=f"{len(made)} simulated cards of a described machine")


def software(description: Description) -> Software:
    """Return what the driver, the libraries and TensorFlow report about themselves."""
    table = description.software
    sass, ptx = kernels_of(description)
    return Software(
        tensorflow="2.21.0",
        numpy=metadata.version("numpy"),
        python=platform.python_version(),
        onednn=True,
        built_with_cuda=True,
        built_cuda="12.5.1",
        built_cudnn="9",
        driver=table.driver,
        driver_cuda=table.driver_cuda,
        cudnn=table.cudnn,
        nccl=table.nccl,
        kernels_sass=sass,
        kernels_ptx=ptx,
        visible=table.visible,
        numbering=tuple(card.uuid or "" for _, card in _cards(description)),
        tf32=True,
    )


def _cards(description: Description) -> tuple[tuple[int, Card], ...]:
    return slots(description).cards


def _name(card: Card) -> str:
    return card.device or card.label


def reserved_bytes(description: Description) -> int:
    """Return the memory of a card that the driver has."""
    return min(DRIVER_BYTES, model_of(description).memory_bytes // 16)


def _card(description: Description, slot: int, by_driver: int, by_tensorflow: int | None) -> Card:
    model = model_of(description)
    return Card(
        label=f"GPU:{by_tensorflow}" if by_tensorflow is not None else f"nvml:{by_driver}",
        name=description.cards.model,
        device=_DEVICE.format(by_tensorflow) if by_tensorflow is not None else None,
        index=by_driver,
        uuid=uuid_of(slot),
        pci=pci_of(slot),
        free_bytes=model.memory_bytes - reserved_bytes(description),
        compute_capability=model.compute_capability,
        memory_bytes=model.memory_bytes,
        numa_node=0 if slot < (description.cards.count + 1) // 2 else 1,
        serial=serial_of(slot),
        vbios=VBIOS,
        board_part=BOARD_PART,
        slot=str(slot + 1),
        profile=found.name if (found := profile_for(description.cards.model)) else None,
    )
