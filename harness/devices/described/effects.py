"""Whether a fault can act on its machine. A card with one that cannot would count as faulty, and behave as healthy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.devices.described import fault_tables as tables
from harness.devices.described.order import model_of, nvlinks_of, software_mib_of

if TYPE_CHECKING:
    from harness.devices.described.description import Description

#: 64-bit words of a MiB.
_WORDS = 2**20 // 8


def without_effect(description: Description, fault: tables.FaultTable) -> tuple[str, object, str] | None:
    """Return the key of a fault that makes it act on nothing, its value, and what would act; ``None`` if it acts."""
    slot = getattr(fault, "card", None)
    model = model_of(description, slot)
    software_mib = description.cards.software_mib if slot is None else software_mib_of(description, slot)
    if isinstance(fault, tables.LinkWidth) and fault.width >= model.pcie_width:
        return "width", fault.width, f"less than the {model.pcie_width} lanes of the card"
    if isinstance(fault, tables.LinkGeneration) and fault.generation >= model.pcie_generation:
        return "generation", fault.generation, f"less than {model.pcie_generation}, the generation of the card"
    if isinstance(fault, tables.PowerLimit) and fault.watts > model.power_limit_w:
        return "watts", fault.watts, f"up to {model.power_limit_w:g}, the power limit of the card"
    if isinstance(fault, tables.NvlinkDown) and fault.links > (links := nvlinks_of(description, fault.card)):
        accepted = f"up to {links}, the NVLinks of this card" if links else "a card with NVLinks; this one has none"
        return "links", fault.links, accepted
    if isinstance(fault, tables.StuckBit) and fault.word >= (words := software_mib * _WORDS):
        return "word", fault.word, f"less than {words:,}, the words of a card with {software_mib} MiB"
    return None
