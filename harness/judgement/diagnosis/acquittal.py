"""Ops whose results the reference does not have, and that are right: what the program makes of them is right.

A program may compute in parts that the reference never has, such as the partial products of a mesh of devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.judgement.diagnosis.recorded import GIVEN, MOVES, Step, is_common

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search

#: What these give may be right although what they read is not: they choose, round or normalize.
_BLIND = ("Max", "Min", "Relu", "Select", "Sign", "Floor", "Ceil", "Round", "Clip", "TopK", "Softmax", "Norm")


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
