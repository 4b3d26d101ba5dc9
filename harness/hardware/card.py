"""The cards under configured devices, and the cards that the driver reports."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.devices import nvidia
from harness.devices.bus import on_bus, without_driver
from harness.devices.cpu import cpu_model, read_cpuinfo
from harness.devices.device import Device, Devices
from harness.hardware.machine import Reading
from harness.hardware.profile import profile_for
from harness.lazy import tf
from harness.records import Card
from harness.softgpu import DescribedGpus, loaded

_PCI_DEVICES = Path("/sys/bus/pci/devices")
_PCI_SLOTS = Path("/sys/bus/pci/slots")
_MIB = 2**20
#: What a device on a divided card is, and such a card itself.
MIG = "MIG slice"
#: Words in the names of GPUs on the chip of a processor, which have neither memory nor a PCIe link of their own.
_ON_CHIP = ("GB10", "Thor", "Orin", "Xavier", "Tegra")
#: What the error of a card says where no driver is loaded.
NO_DRIVER = "NVIDIA's driver is not loaded"


def cards_of(
    devices: Devices, driver: Sequence[nvidia.Card] | None = None
) -> tuple[tuple[Card, ...], tuple[Card, ...]]:
    """Return the cards of ``devices`` in their order, and all that the driver reports, in its order.

    Without a driver the second are the first. A card of the driver without a device has a label such as ``nvml:3``.
    """
    known = nvidia.read_cards() if driver is None else driver
    physical = tf.config.list_physical_devices("GPU")
    uuids = nvidia.cuda_uuids() if physical and known else ()
    matched = nvidia.match_cards(len(physical), known, uuids)
    by_physical = {gpu.name: card for gpu, card in zip(physical, matched, strict=True) if card is not None}
    on_physical = Counter(device.physical for device in devices)
    cards = tuple(
        _card(device, by_physical.get(device.physical), alone=on_physical[device.physical] == 1) for device in devices
    )
    unreachable = _unreachable(known, used=bool(physical))
    if not known and not unreachable:
        return cards, cards
    by_uuid = {card.uuid: card for card in cards if card.uuid is not None}
    present = [
        by_uuid.get(card.uuid) or _of_driver(card, f"nvml:{card.index}", part=MIG if card.slices else None)
        for card in known
    ]
    return cards, (*present, *unreachable)


def unusable(cards: Sequence[Card], present: Sequence[Card], visible: str | None) -> tuple[Card, ...]:
    """Return the cards of ``present`` that nobody hides and TensorFlow lacks, each with its error.

    ``visible`` is ``CUDA_VISIBLE_DEVICES``.
    """
    used = set(nvidia.cuda_uuids())
    if not used and any(card.is_gpu for card in cards):
        return tuple(card for card in present if card.error is not None)  # which cards it has is unknown
    error = nvidia.cuda_error()
    why = "TensorFlow does not see it" if error is None else f"cuInit fails with error {error}"
    whole = [card for card in present if card.uuid is not None and card.error is None and card.part != MIG]
    shown = {card.uuid for card in nvidia.visible_cards(whole, visible)}
    named = (replace(card, error=why) if card.error is None and card.uuid in shown - used else card for card in present)
    return tuple(card for card in named if card.error is not None)


def _unreachable(known: Sequence[nvidia.Card], *, used: bool) -> list[Card]:
    """Return the cards that do not answer the driver, and those on the PCI bus that it does not count.

    ``used`` is whether TensorFlow uses GPUs, so that there is a driver.
    """
    silent = nvidia.silent_cards()
    made = [
        Card(
            f"nvml:{card.index}",
            "GPU",
            index=card.index,
            uuid=card.uuid,
            pci=card.pci,
            kind="GPU",
            serial=card.serial,
            slot=slot_of(card.pci),
            error=card.error,
        )
        for card in silent
    ]
    broken, driverless = nvidia.nvml_error(), () if known or silent or used else without_driver()
    if nvidia.counted_cards() > len(known) + len(silent):
        return made  # the bus also has the cards that are given to other processes
    machine = loaded()
    if not (known or silent or broken or driverless or isinstance(machine, DescribedGpus)):
        return made
    on = driverless or on_bus(machine) or ()
    addresses = {(pci or "").lower() for pci in (*(card.pci for card in known), *(card.pci for card in made))}
    missing = [address for address in on if address.lower() not in addresses]
    nameless = [card for card in made if card.pci is None]
    if len(missing) == len(nameless):
        # The driver numbers cards in the order of the bus.
        of = {card.label: pci for card, pci in zip(nameless, missing, strict=True)}
        return [replace(card, pci=pci, slot=slot_of(pci)) if (pci := of.get(card.label)) else card for card in made]
    if len(missing) > len(nameless) + sum(card.pci is None for card in known):
        why = "unknown to the driver" if broken is None else f"NVML fails: {broken}"
        unknown = f"is on the PCI bus, but {NO_DRIVER if driverless else why}"
        made += [Card(f"pci:{pci}", "GPU", pci=pci, kind="GPU", slot=slot_of(pci), error=unknown) for pci in missing]
    return made


def alike(cards: Sequence[Card]) -> list[tuple[Card, ...]]:
    """Group the cards by kind and model."""
    groups: dict[tuple[str, str], tuple[Card, ...]] = {}
    for card in cards:
        key = (card.kind, card.name)
        groups[key] = (*groups.get(key, ()), card)
    return list(groups.values())


def _part(device: Device, known: nvidia.Card | None, *, alone: bool) -> str | None:
    """Return what a device is where it is no whole card."""
    if device.kind == "software-gpu":
        return "software GPU"
    if known is not None and known.uuid.startswith("MIG-"):
        return MIG
    return "logical GPU" if device.kind == "logical-gpu" and not alone else None


def _card(device: Device, known: nvidia.Card | None, *, alone: bool) -> Card:
    label, index = device.parsed.short, device.parsed.index
    part = _part(device, known, alone=alone)
    if known is not None:
        capability = _details(device).get("compute_capability")
        dotted = ".".join(str(part) for part in capability) if capability else None
        return _of_driver(known, label, device.name, index, dotted, part)
    if device.parsed.kind == "CPU":
        return Card(label, _cpu_name(device), device=device.name, index=index, kind="CPU")
    name = str(_details(device).get("device_name") or "GPU")
    if device.kind == "software-gpu":
        return Card(label, name, device=device.name, index=index, kind="software GPU")
    if part is None and " MIG " in name:
        part = MIG
    profile = profile_for(name) if part is None else None
    return Card(
        label, name, device=device.name, index=index, profile=profile.name if profile else None, kind="GPU", part=part
    )


def _of_driver(
    card: nvidia.Card,
    label: str,
    device: str | None = None,
    index: int | None = None,
    capability: str | None = None,
    part: str | None = None,
) -> Card:
    profile = profile_for(card.name) if part is None else None
    return Card(
        label=label,
        name=card.name,
        device=device,
        index=card.index if index is None else index,
        uuid=card.uuid,
        pci=card.pci,
        compute_capability=capability or card.compute_capability,
        memory_bytes=None if card.total_mib is None else card.total_mib * _MIB,
        numa_node=numa_node(card.pci),
        profile=profile.name if profile else None,
        kind="GPU",
        part=part,
        slot=slot_of(card.pci),
        serial=card.serial,
        vbios=card.vbios,
        board_part=card.board_part,
        free_bytes=None if card.free_mib is None else card.free_mib * _MIB,
        exclusive=card.exclusive,
    )


def _cpu_name(device: Device) -> str:
    """Return the model of this host's CPU; nothing is known of other hosts."""
    here = device.kind in ("logical-cpu", "core")
    return (cpu_model(read_cpuinfo()) if here else None) or "CPU"


def _details(device: Device) -> dict[str, Any]:
    for physical in tf.config.list_physical_devices("GPU"):
        if physical.name == device.physical:
            found: dict[str, Any] = tf.config.experimental.get_device_details(physical)
            return found
    return {}


def slot_of(pci: str | None, folder: Path = _PCI_SLOTS) -> str | None:
    """Return the name of the slot of a PCI device; ``None`` where the board does not say."""
    wanted = (pci or "").lower().partition(".")[0]
    for slot in sorted(folder.glob("*")) if wanted else ():
        try:
            if (slot / "address").read_text(encoding="ascii").strip() == wanted:
                return slot.name
        except OSError:
            continue
    return None


def numa_node(pci: str | None, folder: Path = _PCI_DEVICES) -> int | None:
    """Return the NUMA node of a PCI device; ``None`` if the kernel says -1 or nothing."""
    if pci is None:
        return None
    try:
        node = int((folder / pci.lower() / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def on_chip(card: Card, reading: Reading) -> bool:
    """Whether the card is on the chip of the host's processor. What it says of a PCIe link means nothing then."""
    return reading.details.shares_memory or any(part in _ON_CHIP for part in re.split(r"[\s()]+", card.name))
