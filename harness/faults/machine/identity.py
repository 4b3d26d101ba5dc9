"""The cards of a described machine as the driver, TensorFlow and a fingerprint name them."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata

from harness.devices.device import Device, Devices
from harness.faults.machine import fault_tables as tables
from harness.faults.machine.description import Description
from harness.faults.machine.models import MODELS, Model
from harness.hardware.profile import profile_for
from harness.hardware.software.installed import Software
from harness.records import Card, Fingerprint, GpuFacts

_DEVICE = "/job:localhost/replica:0/task:0/device:GPU:{}"
#: Machine code for every model here. The wheels of 2.21 have none for 9.0, which is a warning on real cards, but a
#: healthy described machine has none.
KERNELS_SASS = ("6.0", "7.0", "8.0", "8.9", "9.0")
KERNELS_PTX = ("9.0",)


@dataclass(frozen=True, slots=True)
class Slots:
    """Which card is in which slot. ``present`` is in the driver's order, ``cards`` in TensorFlow's, both with slots."""

    present: tuple[tuple[int, Card], ...]
    cards: tuple[tuple[int, Card], ...]


def model_of(description: Description) -> Model:
    """Return the model of the cards, as changed by the description."""
    table = description.cards
    known = MODELS.get(table.model)
    rates = {**(known.rates if known is not None else {}), **table.rates}
    base = known or Model("8.0", table.memory_bytes or 0, rates, rates["matmul float32"] * 1.3, 1000.0, 4)
    return Model(
        compute_capability=table.compute_capability or base.compute_capability,
        memory_bytes=table.memory_bytes or base.memory_bytes,
        rates=rates,
        peak=base.peak,
        memory_gbs=table.memory_gbs or base.memory_gbs,
        pcie_generation=table.pcie_generation or base.pcie_generation,
        pcie_width=table.pcie_width or base.pcie_width,
        nvlinks=base.nvlinks if table.nvlinks is None else table.nvlinks,
        link_gbs=table.link_gbs or base.link_gbs or 20.0,
        clock_max_mhz=base.clock_max_mhz,
        power_limit_w=base.power_limit_w,
        temperature_slowdown_c=base.temperature_slowdown_c,
        pcie_share=base.pcie_share,
    )


def slots(description: Description) -> Slots:
    """Return the cards without those that are absent, missing or hidden by ``CUDA_VISIBLE_DEVICES``."""
    faults = description.fault
    absent = {fault.card for fault in faults if isinstance(fault, tables.Absent)}
    missing = {fault.card for fault in faults if isinstance(fault, tables.Missing)}
    by_driver = [slot for slot in range(description.cards.count) if slot not in absent]
    seen = _visible(description, by_driver)
    for fault in faults:
        if isinstance(fault, tables.Misnumbered) and set(fault.cards) <= set(seen):
            one, other = (seen.index(slot) for slot in fault.cards)
            seen[one], seen[other] = seen[other], seen[one]
    numbered = [slot for slot in seen if slot not in missing]
    cards = tuple((slot, _card(description, slot, by_driver.index(slot), at)) for at, slot in enumerate(numbered))
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


def fingerprint(description: Description, spec: str = "gpu") -> Fingerprint:
    """Return the fingerprint of the machine, without the host, which is not described."""
    installed = software(description)
    return Fingerprint(
        tensorflow=installed.tensorflow,
        keras=None,
        numpy=installed.numpy,
        python=installed.python,
        onednn=None,
        cpu_model=None,
        cores_logical=None,
        cores_physical=None,
        memory_mib=None,
        operating_system="described in a file",
        gpus=tuple(
            GpuFacts(card.name, card.uuid, card.compute_capability, (card.memory_bytes or 0) // 2**20)
            for _, card in _cards(description)
        ),
        driver=installed.driver,
        cuda=installed.built_cuda,
        cudnn=installed.built_cudnn,
        spec=spec,
        devices=devices(description, spec).names,
        tf32=installed.tf32,
    )


def software(description: Description) -> Software:
    """Return what the driver, the libraries and TensorFlow report about themselves."""
    table, faults = description.software, description.fault
    capability = model_of(description).compute_capability
    old = next((fault for fault in faults if isinstance(fault, tables.DriverTooOld)), None)
    bare = any(isinstance(fault, tables.KernelsMissing) for fault in faults)
    lost = tuple(fault.library for fault in faults if isinstance(fault, tables.LibraryMissing))
    return Software(
        tensorflow=table.tensorflow,
        numpy=metadata.version("numpy"),
        python=platform.python_version(),
        onednn=True,
        built_with_cuda=True,
        built_cuda=table.built_cuda,
        built_cudnn=table.built_cudnn,
        driver=old.driver if old else table.driver,
        driver_cuda=old.driver_cuda if old else table.driver_cuda,
        cudnn=None if any("cudnn" in name for name in lost) else table.cudnn,
        nccl=None if any("nccl" in name for name in lost) else table.nccl,
        kernels_sass=tuple(each for each in KERNELS_SASS if not bare or each[0] != capability[0]),
        kernels_ptx=() if bare else KERNELS_PTX if capability >= KERNELS_PTX[0] else ("7.0", *KERNELS_PTX),
        missing_libraries=lost,
        visible=table.visible,
        numbering=tuple(card.uuid or "" for _, card in _cards(description)),
        tf32=table.tf32,
    )


def _cards(description: Description) -> tuple[tuple[int, Card], ...]:
    return slots(description).cards


def _name(card: Card) -> str:
    return card.device or card.label


def _visible(description: Description, by_driver: list[int]) -> list[int]:
    """Apply ``CUDA_VISIBLE_DEVICES`` as CUDA does: indices or UUIDs, up to the first invalid one."""
    text = description.software.visible
    if text is None:
        return list(by_driver)
    seen: list[int] = []
    for token in (part.strip() for part in text.split(",")):
        named = [slot for slot in by_driver if token.startswith("GPU-") and _uuid(slot).startswith(token)]
        if token.isdigit() and int(token) < len(by_driver):
            named = [by_driver[int(token)]]
        if len(named) != 1 or named[0] in seen:
            break
        seen += named
    return seen


def _uuid(slot: int) -> str:
    return f"GPU-{0xC0FFEE00 + slot:08x}-0000-4000-8000-{slot:012x}"


def _card(description: Description, slot: int, by_driver: int, by_tensorflow: int | None) -> Card:
    model = model_of(description)
    return Card(
        label=f"GPU:{by_tensorflow}" if by_tensorflow is not None else f"nvml:{by_driver}",
        name=description.cards.model,
        device=_DEVICE.format(by_tensorflow) if by_tensorflow is not None else None,
        index=by_driver,
        uuid=_uuid(slot),
        pci=f"0000:{0x1B + 3 * slot:02X}:00.0",
        compute_capability=model.compute_capability,
        memory_bytes=model.memory_bytes,
        numa_node=0 if slot < (description.cards.count + 1) // 2 else 1,
        profile=description.cards.profile or (found.name if (found := profile_for(description.cards.model)) else None),
    )
