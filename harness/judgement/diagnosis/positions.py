"""Whole numbers that are those of rows, or of other positions, counted from the first one of a shard."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from harness.judgement.diagnosis.joins import Join
from harness.judgement.diagnosis.question import Array
from harness.judgement.diagnosis.recorded import Step, named

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search

#: So many numbers are not off by the offsets of the parts by chance.
_FEWEST = 3


def counted_anew(search: Search, step: Step, other: Step | None) -> str:
    """Which whole numbers a step reads that are the reference's but for another constant in each shard."""
    group, whole = search.groups[id(step)], {name: each for each in search.whole for name in each.outputs}
    for number in range(len(step.inputs)):
        if other is not None and "Segment" in step.kind and _has_fewer_rows(step, other):
            continue  # the rows of its result are numbered in it
        parts = [search.read(each, number) for each in group]
        known = [part for part in parts if part is not None and part.ndim and _are_whole(part)]
        for theirs in other.inputs if other is not None and len(known) == len(parts) else ():
            right = whole[theirs].results[whole[theirs].outputs.index(theirs)] if theirs in whole else None
            off = _offsets(known, right, len(search.question.devices)) if right is not None else None
            if off is not None:
                at = next(at for at, offset in enumerate(off) if offset)
                maker = search.maker.get(step.inputs[number])
                made = f" from {named(maker)}" if maker is not None else ""
                than = f"{abs(off[at])} {'less' if off[at] > 0 else 'more'} than the reference's"
                return f"the numbers that it reads{made} lack the shard's offset: in shard {at} they are {than}"
    return ""


def _has_fewer_rows(step: Step, other: Step) -> bool:
    mine, theirs = step.results[0], other.results[0]
    return mine is not None and theirs is not None and mine.shape[:1] < theirs.shape[:1]


def _are_whole(array: Array) -> bool:
    return array.dtype.kind in "iuf" and bool(np.all(array == np.floor(array)))


def _offsets(parts: Sequence[Array], right: Array, count: int) -> list[int] | None:
    """What is missing in each part, or in each of ``count`` parts of a single one, if it is one number."""
    for axis in range(min(right.ndim, parts[0].ndim)):
        mine = Join("concat", axis).of(parts, ())
        if mine is None or mine.shape != right.shape or mine.size < _FEWEST or not _are_whole(right):
            continue
        sizes = [part.shape[axis] for part in parts] if len(parts) > 1 else [right.shape[axis] // count] * count
        if sum(sizes) != right.shape[axis] or min(sizes) < 1:
            continue
        lacking = np.moveaxis(right.astype(np.float64) - mine, axis, 0)
        each = [lacking[begin:end] for begin, end in pairwise(np.cumsum([0, *sizes]))]
        off = [int(part.flat[0]) for part in each]
        if len(set(off)) > 1 and all(np.all(part == one) for part, one in zip(each, off, strict=True)):
            return off
    return None
