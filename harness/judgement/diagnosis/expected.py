"""Which op the reference runs in the place of one of the program's, and which ops are right though they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.judgement.diagnosis.recorded import MOVES, Step, equal

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search
import numpy as np

from harness.judgement.diagnosis.recorded import GIVEN, is_common

#: What these give may be right although what they read is not: they choose, round or normalize.
_BLIND = ("Max", "Min", "Relu", "Select", "Sign", "Floor", "Ceil", "Round", "Clip", "TopK", "Softmax", "Norm")


def expected_after(search: Search, step: Step) -> Step | None:
    """The op of the reference that computes with what this one reads."""
    read = {name for each in (step, *search.behind(step)) for name in search.read_there(each)}
    alike = [each for each in search.whole if _is_like(step, each)]
    equals = _equals(search, read, alike)
    readers = [each for each in alike if equals.intersection(each.inputs)]
    reader = counterpart(search, step, alike)
    if readers and reader not in readers:
        reader = counterpart(search, step, readers) or readers[0]
    if reader is not None or not read:
        return reader or _beside(search, step, alike)
    reached = set(read)
    for other in search.whole:
        if reached.intersection(other.inputs) and bool(other.gradient_of) >= bool(step.gradient_of):
            if other.kind not in MOVES and (other.computes or not step.computes):
                return other
            reached.update(other.outputs)
    return None


def _is_like(step: Step, other: Step) -> bool:
    """Whether two steps are of one type, and make numbers of one type."""
    made = {each.first.dtype for each in (step, other) if each.first is not None}
    return (other.kind, other.gradient_of) == (step.kind, step.gradient_of) and len(made) < 2


def _equals(search: Search, read: set[int], readers: Sequence[Step]) -> set[int]:
    """These results of the reference, and those that are equal to one of them, of what ``readers`` read."""
    known = [result for name in read if (result := search.value(name)) is not None and result.size > 1]
    others = {name for each in readers for name in each.inputs}
    return read | {name for name in others if any(equal(search.value(name), one) for one in known)}


def _beside(search: Search, step: Step, alike: Sequence[Step]) -> Step | None:
    """Of the reference's steps of the same type, the only one, or the only one that reads one of the same variables."""
    if len(alike) == 1:
        return alike[0]
    made = [search.maker[name] for name in step.inputs if name in search.maker]
    read = [each.result for each in made if each.kind == "ReadVariableOp"]
    there = {
        name
        for each in search.whole
        if each.kind == "ReadVariableOp" and any(equal(each.result, one) for one in read)
        for name in each.outputs
    }
    same = [each for each in alike if there.intersection(each.inputs)]
    return same[0] if len(same) == 1 else None


def counterpart(search: Search, step: Step, alike: Sequence[Step]) -> Step | None:
    """Of the reference's steps of the same type, the one that the same line of shared code runs as often before.

    Where the reference runs the line as often as all devices together, as once for each row, those of the shards before
    are counted too.
    """
    own, usual = (
        [
            each
            for each in steps
            if (each.kind, each.gradient_of, each.place) == (step.kind, step.gradient_of, step.place)
        ]
        for steps in (search.steps, search.whole)
    )
    here = [each for each in own if each.device == step.device]
    number = here.index(step)
    if len(here) < len(own) == len(usual):
        devices = [device.parsed.short for device in search.question.devices]
        earlier = devices[: devices.index(step.on)] if step.on in devices else []
        number += sum(each.on in earlier for each in own)
    there = [each for each in alike if each.place == step.place]
    return there[number] if number < len(there) else None


def rightly_unlike(search: Search) -> set[int]:
    """The ids of bad steps that lead to right results, and of those that other devices do so in the same way."""
    found: set[int] = set()
    for step in search.steps:
        if _is_right(search, step):
            behind = search.tensors_behind(step, lambda name: search.status[name] in ("differs", "moved"))
            found |= {id(search.maker[name]) for name in behind if search.status[name] == "differs"}
    for step in search.steps:
        if id(step) not in found and search.is_bad(step):
            alike = (each for each in search.groups[id(step)] if id(each) in found)
            if any(_is_done_alike(search, step, each, found) for each in alike):
                found.add(id(step))
    return found


def _is_right(search: Search, step: Step) -> bool:
    """Whether a step makes, of all that it reads, several different numbers that the reference computes too."""
    known = search.partner.get(step.outputs[0]) if step.outputs else None
    if known is None or known.how != "same" or known.step is None or known.step.kind in GIVEN:
        return False
    result = step.result
    if result is None or result.size < 2 or is_common(result) or any(word in step.kind for word in _BLIND):
        return False
    read = (search.value(name) for name in step.inputs)
    sizes = [array.size for array in read if array is not None and array.dtype == result.dtype]
    return step.kind not in MOVES - {"AddN"} or result.size == sum(sizes)


def _is_done_alike(search: Search, step: Step, other: Step, right: set[int]) -> bool:
    """Whether a step reads what is right, made in the same places as what ``other`` reads, and does the same."""
    if step.attributes != other.attributes or len(step.inputs) != len(other.inputs):
        return False
    for number, (mine, theirs) in enumerate(zip(step.inputs, other.inputs, strict=True)):
        one, two = search.maker.get(mine), search.maker.get(theirs)
        if one is None or two is None:
            if one is not two or not _equal_constants(step, other, number):
                return False
            continue
        known = not search.is_bad(one) or id(one) in right
        together = one.device == two.device or (one.device, two.device) == (step.device, other.device)
        if not (known and together and (one.kind, one.places) == (two.kind, two.places)):
            return False
    return True


def _equal_constants(step: Step, other: Step, number: int) -> bool:
    if (number in step.constants) != (number in other.constants):
        return False
    return number not in step.constants or np.array_equal(step.constants[number], other.constants[number])
