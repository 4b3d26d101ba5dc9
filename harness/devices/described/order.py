"""Which card of a described machine is in which slot, and in which order the driver and TensorFlow see them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.devices.described import fault_tables as tables
from harness.devices.described.driver_tables import BusOnly
from harness.devices.described.models import MULTIPROCESSORS, Model, model_named
from harness.devices.nvidia import visible_cards

if TYPE_CHECKING:
    from harness.devices.described.description import CardTable, Description

#: Machine code for every model here. The wheels of 2.21 have none for 9.0, which is a warning on real cards, but a
#: healthy described machine has none.
_KERNELS_SASS = ("6.0", "7.0", "8.0", "8.9", "9.0")
_KERNELS_PTX = ("9.0",)
#: What every card says of itself.
VBIOS, BOARD_PART = "96.00.30.00.01", "692-2G520-0200-000"


@dataclass(frozen=True, slots=True)
class Order:
    """Slots in the driver's order, and in TensorFlow's."""

    by_driver: tuple[int, ...]
    by_tensorflow: tuple[int, ...]


class _Slot(NamedTuple):
    slot: int
    uuid: str


def order_of(description: Description) -> Order:
    """Leave out the cards that are absent, missing or hidden by ``CUDA_VISIBLE_DEVICES``."""
    faults = description.fault
    absent = {fault.card for fault in faults if isinstance(fault, tables.Absent | BusOnly)}
    missing = {fault.card for fault in faults if isinstance(fault, tables.Missing)}
    missing |= {fault.card for fault in faults if isinstance(fault, tables.Lost) and not fault.after_ops}
    by_driver = [slot for slot in range(description.cards.count) if slot not in absent]
    cards = [_Slot(slot, uuid_of(slot)) for slot in by_driver]
    seen = [card.slot for card in visible_cards(cards, description.software.visible)]
    for fault in faults:
        if isinstance(fault, tables.Misnumbered) and set(fault.cards) <= set(seen):
            one, other = (seen.index(slot) for slot in fault.cards)
            seen[one], seen[other] = seen[other], seen[one]
    if description.cards.slices:
        # CUDA shows a process one slice, and no card.
        seen = seen[:1]
    return Order(tuple(by_driver), tuple(slot for slot in seen if slot not in missing))


def own_table(description: Description, slot: int | None) -> CardTable | None:
    """Return what differs on a card, if anything does."""
    return next((each for each in description.card if each.card == slot), None)


def name_of(description: Description, slot: int) -> str:
    """Return the name of the model of a card."""
    own = own_table(description, slot)
    return (own and own.model) or description.cards.model


def software_mib_of(description: Description, slot: int) -> int:
    """Return the memory of the software GPU of a card, in MiB."""
    own = own_table(description, slot)
    return (own and own.software_mib) or description.cards.software_mib


def model_of(description: Description, slot: int | None = None) -> Model:
    """Return the model of the cards, or of the one in a slot, as changed by the description."""
    own = own_table(description, slot)
    if own is not None and own.model is not None:
        model = model_named(own.model)
        return replace(model, compute_capability=own.compute_capability or model.compute_capability)
    table = description.cards
    given = {
        "compute_capability": table.compute_capability,
        "pcie_generation": table.pcie_generation,
        "pcie_width": table.pcie_width,
        "nvlinks": table.nvlinks,
        "link_gbs": table.link_gbs,
    }
    known: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    return replace(model_named(table.model), **known)


def nvlinks_of(description: Description, slot: int) -> int:
    """Return how many NVLinks of a card are connected, those that are down too."""
    bridges = description.cards.bridges
    return sum(each[2] for each in bridges if slot in each[:2]) if bridges else model_of(description, slot).nvlinks


def nvlinks_joining(description: Description, one: int, other: int) -> int:
    """Return the NVLinks between two cards, those that are down too: directly, or through switches that join all."""
    bridges = description.cards.bridges
    if bridges:
        return sum(each[2] for each in bridges if {one, other} == set(each[:2]))
    return min(nvlinks_of(description, one), nvlinks_of(description, other))


def on_bus(description: Description) -> tuple[int, ...]:
    """Return the slots of the cards that are on the PCI bus, those too that the driver does not know."""
    more = {fault.card for fault in description.fault if isinstance(fault, BusOnly)}
    return tuple(sorted({*order_of(description).by_driver, *more}))


def multiprocessors_of(description: Description, slot: int) -> int | None:
    """Return how many multiprocessors a card has; ``None`` if that is unknown."""
    own = own_table(description, slot)
    given = own.multiprocessors if own is not None else None
    return given or MULTIPROCESSORS.get(name_of(description, slot).removeprefix("NVIDIA "))


def kernels_of(description: Description) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the compute capabilities that TensorFlow has machine code for, and PTX."""
    capability = model_of(description).compute_capability
    if any(isinstance(fault, tables.KernelsMissing) for fault in description.fault):
        return tuple(each for each in _KERNELS_SASS if each[0] != capability[0]), ()
    return _KERNELS_SASS, _KERNELS_PTX if capability >= _KERNELS_PTX[0] else ("7.0", *_KERNELS_PTX)


def uuid_of(slot: int) -> str:
    """Return the UUID of the card in a slot."""
    return f"GPU-{0xC0FFEE00 + slot:08x}-0000-4000-8000-{slot:012x}"


def slice_uuid_of(slot: int, number: int) -> str:
    """Return the UUID of a slice of the card in a slot."""
    return f"MIG-{0xC0FFEE00 + slot:08x}-{number + 1:04x}-4000-8000-{slot:012x}"


def serial_of(slot: int) -> str:
    """Return the serial number of the card in a slot."""
    return f"{1320000000 + slot:010d}"


def pci_of(slot: int) -> str:
    """Return the PCI address of a slot, as the kernel writes it."""
    return f"0000:{0x1B + 3 * slot:02X}:00.0"
