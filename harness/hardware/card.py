"""The cards under configured devices, and the cards that the driver knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.devices.cpu import cpu_model, read_cpuinfo
from harness.devices.device import Device, Devices
from harness.hardware.nvml import DriverCard, Nvml
from harness.hardware.profile import profile_for
from harness.records import Card

_PCI_DEVICES = Path("/sys/bus/pci/devices")


def cards_of(devices: Devices, nvml: Nvml | None = None) -> tuple[tuple[Card, ...], tuple[Card, ...]]:
    """The cards of ``devices`` in their order, and all that the driver knows, in its order.

    Without a driver the second are the first. A card of the driver that no device is on has a label such as ``nvml:3``.
    """
    import tensorflow as tf

    driver = (nvml or Nvml.load()).cards()
    by_physical = _physical_cards(tf, driver)
    cards = tuple(_card(tf, device, by_physical.get(device.physical)) for device in devices)
    if not driver:
        return cards, cards
    by_uuid = {card.uuid: card for card in cards if card.uuid is not None}
    return cards, tuple(by_uuid.get(card.uuid) or _of_driver(card, f"nvml:{card.index}") for card in driver)


def _physical_cards(tensorflow: Any, driver: tuple[DriverCard, ...]) -> dict[str, DriverCard]:
    """The driver's card behind each of TensorFlow's physical GPUs, where it is certain which one it is."""
    from harness.devices.nvidia import cuda_uuids

    physical = tensorflow.config.list_physical_devices("GPU")
    if not physical or not driver:
        return {}
    uuids = cuda_uuids()
    by_uuid = {card.uuid: card for card in driver}
    if len(uuids) == len(physical):
        return {gpu.name: by_uuid[uuid] for gpu, uuid in zip(physical, uuids, strict=True) if uuid in by_uuid}
    return {physical[0].name: driver[0]} if len(physical) == len(driver) == 1 else {}


def _card(tensorflow: Any, device: Device, known: DriverCard | None) -> Card:
    label, index = device.parsed.short, device.parsed.index
    if known is not None:
        details = _details(tensorflow, device)
        capability = details.get("compute_capability")
        card = _of_driver(known, label)
        return Card(
            label=label,
            name=card.name,
            device=device.name,
            index=index,
            uuid=card.uuid,
            pci=card.pci,
            compute_capability=".".join(str(part) for part in capability) if capability else None,
            memory_bytes=card.memory_bytes,
            numa_node=card.numa_node,
            profile=card.profile,
        )
    if device.parsed.kind == "CPU":
        return Card(label, _cpu_name(device), device=device.name, index=index)
    name = str(_details(tensorflow, device).get("device_name") or "GPU")
    profile = profile_for(name)
    return Card(label, name, device=device.name, index=index, profile=profile.name if profile else None)


def _of_driver(card: DriverCard, label: str) -> Card:
    profile = profile_for(card.name)
    return Card(
        label=label,
        name=card.name,
        index=card.index,
        uuid=card.uuid,
        pci=card.pci,
        memory_bytes=card.memory_bytes,
        numa_node=numa_node(card.pci),
        profile=profile.name if profile else None,
    )


def _cpu_name(device: Device) -> str:
    """The model of this host's CPU; of another host nothing is known."""
    here = device.kind in ("logical-cpu", "core")
    return (cpu_model(read_cpuinfo()) if here else None) or "CPU"


def _details(tensorflow: Any, device: Device) -> dict[str, Any]:
    for physical in tensorflow.config.list_physical_devices("GPU"):
        if physical.name == device.physical:
            found: dict[str, Any] = tensorflow.config.experimental.get_device_details(physical)
            return found
    return {}


def numa_node(pci: str | None, folder: Path = _PCI_DEVICES) -> int | None:
    """The NUMA node that a PCI device hangs on; ``None`` where the kernel says -1 or nothing."""
    if pci is None:
        return None
    try:
        node = int((folder / pci.lower() / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None
