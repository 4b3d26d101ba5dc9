"""Both programs followed back from a result, op by op, where they run the same ops on the way to it.

Rows that are right in another place, as where a mask is wrong, are found so: matched by value, they have an equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from harness.judgement.diagnosis.question import Array
from harness.judgement.diagnosis.recorded import Step, equal

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search


def first_unlike(search: Search, join: Step) -> tuple[Step, Step] | None:
    """The first op behind a part of a joined result that differs from the reference's op, and that one."""
    leaf = next((leaf for name, leaf in search.wrong_outputs() if name in join.outputs), None)
    right = leaf.expected if leaf is not None else None
    if right is None or join.kind != "ConcatV2":
        return None
    there = next((step for step in reversed(search.whole) if any(equal(each, right) for each in step.results)), None)
    parts = [(search.maker[name], search.value(name)) for name in join.inputs[:-1] if name in search.maker]
    known = [(step, part) for step, part in parts if part is not None and part.ndim == right.ndim]
    axis = int(join.constants.get(len(join.inputs) - 1, np.array(0))) % max(right.ndim, 1)
    begin = 0
    for step, part in known if len(known) == len(join.inputs) - 1 else ():
        rows = range(begin, begin + part.shape[axis])
        begin = rows.stop
        if there is not None and not _alike(part, right, rows, right.shape[axis]):
            return _behind(search, step, there, rows, right.shape[axis])
    return None


def _behind(search: Search, step: Step, there: Step, rows: Sequence[int], of: int) -> tuple[Step, Step] | None:
    while (step.kind, len(step.inputs)) == (there.kind, len(there.inputs)):
        for number, (mine, theirs) in enumerate(zip(step.inputs, there.inputs, strict=True)):
            own, right = search.read(step, number), search.value(theirs)
            if own is None or right is None or mine not in search.from_data:
                continue
            if mine in search.maker and not _alike(own, right, rows, of):
                step, there = search.maker[mine], search.makers[theirs]
                break
        else:
            return step, there
    return None


def _alike(own: Array, right: Array, rows: Sequence[int], of: int) -> bool:
    """Whether a tensor is the reference's, or those rows of it."""
    if own.shape == right.shape:
        return equal(own, right)
    along = [axis for axis, size in enumerate(right.shape) if size == of]
    return any(equal(own, np.take(right, rows, axis)) for axis in along)
