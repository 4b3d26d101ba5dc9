"""Whether a fault can act on its machine. A card with one that cannot would count as faulty, and behave as healthy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.devices.described import driver_tables, fault_tables as tables
from harness.devices.described.order import model_of, nvlinks_of, order_of, software_mib_of
from harness.devices.described.state import gpus_of, remaps_rows
from harness.devices.toml_file import did_you_mean
from harness.softgpu.drivers import nvml_functions

if TYPE_CHECKING:
    from harness.devices.described.description import Description

#: 64-bit words of a MiB.
_WORDS = 2**20 // 8
#: The smallest relative error that changes a number of a type: from 1 to the next one.
_ROUNDING = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
#: Keys that say where a fault is.
_PLACE = ("card", "pair", "cards", "op", "dtype", "word", "bit", "call", "algorithm", "library", "error", "links")
_SAME = (
    "a fault that changes the machine; this one changes nothing, or something else in the file hides it: another "
    "fault, a value in [software], or sensors that are off (cards.sensors, cards.without)"
)


def without_effect(description: Description, fault: tables.FaultTable) -> tuple[str, object, str] | None:
    """Return the key of a fault that makes it act on nothing, its value, and what would act; ``None`` if it acts."""
    slot = getattr(fault, "card", None)
    model = model_of(description, slot)
    software_mib = description.cards.software_mib if slot is None else software_mib_of(description, slot)
    if isinstance(fault, tables.LinkWidth) and fault.width >= model.pcie_width:
        return "width", fault.width, f"less than the {model.pcie_width} lanes of the card"
    if isinstance(fault, tables.LinkGeneration) and fault.generation >= model.pcie_generation:
        return (
            "generation",
            fault.generation,
            f"less than {model.pcie_generation}, the generation of the card's PCIe link",
        )
    if isinstance(fault, tables.PowerLimit) and fault.watts >= model.power_limit_w:
        return "watts", fault.watts, f"less than {model.power_limit_w:g}, the power limit of the card"
    if isinstance(fault, tables.NvlinkDown) and fault.links > (links := nvlinks_of(description, fault.card)):
        accepted = (
            f"up to {links}, the number of NVLinks of this card" if links else "a card with NVLinks; this one has none"
        )
        return "links", fault.links, accepted
    if isinstance(fault, driver_tables.NvlinkErrors):
        links = nvlinks_of(description, fault.card)
        if max(fault.links) >= links:
            return "links", fault.links, f"numbers below {links}, the number of NVLinks of this card"
        if not fault.old and not fault.per_s:
            return "per_s", fault.per_s, "a number above 0, or `old` above 0"
    if isinstance(fault, driver_tables.FabricState) and (description.cards.bridges or not model.nvlinks):
        return "kind", fault.kind, "another kind; no NVSwitch joins these cards, so they have no fabric"
    if (mhz := getattr(fault, "mhz", None)) is not None and mhz >= model.clock_max_mhz:
        return "mhz", mhz, f"less than {model.clock_max_mhz:g}, the highest clock of the card"
    if isinstance(fault, driver_tables.PowerCap) and fault.watts >= model.power_limit_w:
        return "watts", fault.watts, f"less than {model.power_limit_w:g}, the power limit of the card"
    if isinstance(fault, tables.StuckBit) and fault.word >= (words := software_mib * _WORDS):
        return "word", fault.word, f"less than {words:,}, the number of 64-bit words in {software_mib} MiB"
    if isinstance(fault, tables.Leak) and fault.bytes_per_step > software_mib * 2**20:
        return "bytes_per_step", fault.bytes_per_step, f"up to {software_mib * 2**20:,}, the card's memory in bytes"
    if isinstance(fault, tables.WrongArithmetic) and fault.relative_error < (least := _ROUNDING[fault.dtype]):
        return "relative_error", fault.relative_error, f"{least:.2g} or more: {fault.dtype} rounds smaller errors away"
    if isinstance(fault, tables.DriverTooOld):
        newer = description.software.driver_cuda.split(".")[0]
        if int(fault.driver_cuda.split(".")[0]) >= int(newer):
            return (
                "driver_cuda",
                fault.driver_cuda,
                f"a version before {newer}, the major version of `driver_cuda` in [software]",
            )
    if isinstance(fault, tables.CollectiveDrop | driver_tables.CollectiveHang) and len(_seen(description)) < 2:
        return "kind", fault.kind, "another kind; a collective needs two cards that TensorFlow sees"
    if isinstance(fault, tables.BitFlip):
        size = int("".join(filter(str.isdigit, fault.dtype or "int8"))) // 8
        most = software_mib * 2**20 // size
        limited = f"{most:,}: {software_mib} MiB hold no more elements"
        if fault.least_elements > most:
            return "least_elements", fault.least_elements, f"up to {limited}"
        if fault.elements is not None:
            if max(fault.elements) >= most:
                return "elements", fault.elements, f"indices below {limited}"
            if len(set(fault.elements)) < len(fault.elements):
                return "elements", fault.elements, "each index once, because a bit that flips twice is unchanged"
            if fault.run > 1:
                return "run", fault.run, "1 (the default) together with `elements`"
    if isinstance(fault, tables.RowRemap) and not remaps_rows(model):
        return "kind", fault.kind, "retired-pages; this card is older than the A100 and cannot remap rows"
    if isinstance(fault, tables.RetiredPages) and remaps_rows(model):
        return "kind", fault.kind, "row-remap; cards from the A100 on remap rows instead of retiring pages"
    if isinstance(fault, tables.NvmlError) and (wrong := _never_called(fault)) is not None:
        return "call", fault.call, wrong
    return _unseen(description, fault) or _hidden(description, fault)


def hides(fault: tables.FaultTable, later: tables.FaultTable, name: str) -> str | None:
    """Return what is accepted where ``later``, whose name is given, replaces ``fault`` or undoes it, else ``None``."""
    if isinstance(fault, tables.OnPair) and isinstance(later, tables.OnPair) and fault.pair == later.pair:
        if later.probability == 1 or fault.kind == later.kind:
            return (
                "one fault for each pair, or faults of different kinds, each later one with a probability below 1; "
                f"{name} hides this one"
            )
    # Several kinds of flips on one card are no contradiction.
    elif type(fault) is type(later) and (fault == later or not isinstance(fault, tables.BitFlip)):
        places = [[getattr(each, key, None) for key in _PLACE] for each in (fault, later)]
        if isinstance(fault, tables.Misnumbered) and isinstance(later, tables.Misnumbered):
            places = [[sorted(each.cards)] for each in (fault, later)]
        if places[0] == places[1]:
            return f"each kind of fault once in each place, such as a card or a bit; {name} repeats this one"
    return None


def _never_called(fault: tables.NvmlError) -> str | None:
    """Return what is accepted where the fault names no function, or one that cannot fail so."""
    functions = nvml_functions()
    if fault.call is None:
        return "an NVML function, such as 'nvmlInit'; or add the key `card`" if fault.card is None else None
    if fault.call not in functions:
        return f"an NVML function without a version suffix such as _v2{did_you_mean(fault.call, functions)}"
    if fault.card is not None and not functions[fault.call]:
        return "a function that takes a card; this one takes none, so remove the key `card`"
    return None


def _unseen(description: Description, fault: tables.FaultTable) -> tuple[str, object, str] | None:
    """Find a card that does not answer, or that TensorFlow does not use where the fault needs work."""
    slot = getattr(fault, "card", None)
    lost = {each.card for each in description.fault if isinstance(each, tables.Lost) and not each.after_ops}
    if slot in lost and not isinstance(fault, tables.Lost):
        return "card", slot, "a card that answers; this one is lost"
    seen = _seen(description)
    working = isinstance(fault, tables.Hot | tables.Replays | tables.Xid | tables.LinkGeneration)
    if isinstance(fault, tables.Ecc):
        working = bool(fault.corrected_per_s or fault.uncorrected_per_s)
    return ("card", slot, _accepted(seen)) if working and slot not in seen else None


def _hidden(description: Description, fault: tables.FaultTable) -> tuple[str, object, str] | None:
    """Find a fault without which the machine is the same."""
    others = description.model_copy(update={"fault": [each for each in description.fault if each is not fault]})
    if gpus_of(description, "") != gpus_of(others, ""):
        return None
    seen = _seen(others)
    for key in ("card", "pair", "cards"):
        value = getattr(fault, key, None)
        named = {value} if isinstance(value, int) else set(value or ())
        if not named <= set(seen):
            return key, value, _accepted(seen)
    return "kind", getattr(fault, "kind", ""), _SAME


def _seen(description: Description) -> list[int]:
    """List the slots of the cards that TensorFlow uses."""
    by_driver = order_of(description).by_driver
    return sorted(by_driver[number] for number in gpus_of(description, "").numbers)


def _accepted(seen: list[int]) -> str:
    if not seen:
        return "a card that TensorFlow sees; it sees none on this machine"
    return f"cards that TensorFlow sees: {', '.join(map(str, seen))} (no card that is absent, missing, lost or hidden)"
