"""What a shard lacks: the neighbouring rows beside a cut, or the offset of numbers that it counts from 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.judgement.diagnosis.joins import Join
from harness.judgement.diagnosis.layout import Layout
from harness.judgement.diagnosis.question import Array, Leaf, Question
from harness.judgement.diagnosis.recorded import Step, close, equal
from harness.judgement.diagnosis.replays import run_again
from harness.lazy import tf
from harness.plural import plural

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search
from itertools import pairwise

from harness.judgement.diagnosis.recorded import named

#: So many numbers are not off by the offsets of the parts by chance.
_FEWEST = 3


@dataclass(frozen=True)
class _Part:
    """``size`` of ``of`` rows along an axis, from ``begin`` on; ``reach``: it may lack so many on each side."""

    axis: int
    begin: int
    size: int
    of: int
    reach: int

    def of_input(self, own: Array, whole: Array) -> tuple[Array, int | None] | None:
        """An input with the neighbours' rows of ``whole``, and how many more rows the op then makes before its own.

        That number is ``None`` if all parts read the whole. No result: what the op reads are not rows of ``whole``.
        """
        if own.shape == whole.shape:
            return (own, None) if equal(own, whole) else None
        axes = [axis for axis, sizes in enumerate(zip(own.shape, whole.shape, strict=False)) if len({*sizes}) > 1]
        if own.ndim != whole.ndim or len(axes) != 1:
            return None
        axis, stride = axes[0], max(whole.shape[axes[0]] // self.of, 1)
        begin, size = self.begin * stride, own.shape[axis]
        edge, rest = divmod(size - self.size * stride, 2)  # rows of zeros, say, in the neighbours' place
        pad = edge - (whole.shape[axis] - self.of * stride) // 2
        if rest or edge < 0 or pad < 0:
            return None
        whole = np.pad(whole, [(pad, pad) if each == axis else (0, 0) for each in range(whole.ndim)])
        inner = (
            array.take(range(edge + first, size - edge + first), axis) for array, first in ((own, 0), (whole, begin))
        )
        if not equal(*inner):
            return None
        before = 0 if edge else min(self.reach, self.begin)
        after = 0 if edge else min(self.reach, self.of - self.begin - self.size)
        return whole.take(range(begin - before * stride, begin + size + after * stride), axis), before


def reach_of(question: Question, layout: Layout, leaves: Sequence[Leaf]) -> int:
    """Within how many rows of the cuts results differ, if a shard with so many rows of its neighbours has them right.

    0 where they differ elsewhere too.
    """
    pairs = [(leaf, leaf.found, leaf.expected) for leaf in leaves if leaf.found is not None]
    known = [_beside_cuts(found, right, layout.axis, layout.sizes) for _, found, right in pairs if right is not None]
    reach, sizes = max(known, default=0), layout.sizes
    if len(known) < len(leaves) or not all(known) or layout.covered != list(range(layout.rows)):
        return 0
    middle = len(sizes) // 2
    begin, end = sum(sizes[:middle]), sum(sizes[: middle + 1])
    rows = range(max(begin - reach, 0), min(end + reach, layout.rows))
    own = list(question.reference.leaves())
    for index, (axis, shards) in layout.cuts.items():
        numbers = [row for shard in shards for row in shard]
        own[index] = tf.gather(own[index], [numbers[row] for row in rows], axis=axis)
    result = question.run(inputs=question.with_leaves(own), gradients=False)
    for leaf, _, right in pairs:
        made = leaf.of(result) if result is not None else None
        if made is None or right is None or made.ndim != right.ndim or made.shape[layout.axis] != len(rows):
            return 0
        mine = np.take(made, range(begin - rows.start, end - rows.start), layout.axis)
        theirs = np.take(right, range(begin, end), layout.axis)
        if mine.shape != theirs.shape or not np.all(close(mine, theirs)):
            return 0
    return reach


def without_neighbours(search: Search, step: Step, other: Step | None) -> str:
    """Of a step on each device that the reference runs once: whether its rows beside the cuts alone differ.

    With the rows of the neighbours it has to be right.
    """
    group = [each for each in search.groups[id(step)] if each.results]
    parts = [each.first for each in group]
    known = [part for part in parts if part is not None and part.ndim]
    right = other.first if other is not None and other.kind == step.kind else None
    if (
        other is None
        or right is None
        or len(known) < max(len(parts), 2)
        or any(part.ndim != right.ndim for part in known)
    ):
        return ""
    for axis in range(right.ndim):
        sizes = [part.shape[axis] for part in known]
        joined = Join("concat", axis).of(known, sizes)
        reach = _beside_cuts(joined, right, axis, sizes) if joined is not None else 0
        cuts = [_Part(axis, sum(sizes[:number]), size, right.shape[axis], reach) for number, size in enumerate(sizes)]
        if reach and all(_right_beside(search, each, other, cut) for each, cut in zip(group, cuts, strict=True)):
            lacking = f"it lacks {'positions' if axis else 'rows'} of the neighbouring shard"
            return f"its result differs only {beside(reach, axis)} along axis {axis}: {lacking}"
    return ""


def _right_beside(search: Search, step: Step, other: Step, part: _Part) -> bool:
    """Whether a step gives this part of what the reference's op gives, if it also reads the rows beside the part."""
    pairs = [(search.read(step, number), search.read(other, number)) for number in range(len(step.inputs))]
    read = [part.of_input(own, whole) if own is not None and whole is not None else None for own, whole in pairs]
    known = [each for each in read if each is not None]
    before = {count for _, count in known if count is not None}
    made = run_again(step, [array for array, _ in known], step.given) if len(known) == len(read) else None
    if not made or len(before) != 1 or made[0].ndim <= part.axis or other.first is None:
        return False
    first = before.pop()
    mine = made[0].take(range(first, min(first + part.size, made[0].shape[part.axis])), part.axis)
    right = other.first.take(range(part.begin, part.begin + part.size), part.axis)
    return mine.shape == right.shape and bool(np.all(close(mine, right)))


def beside(reach: int, axis: int) -> str:
    """``within 2 rows of a shard boundary``."""
    return f"within {plural(reach, 'position' if axis else 'row')} of a shard boundary"


def _beside_cuts(found: Array, right: Array, axis: int, sizes: Sequence[int]) -> int:
    """Within how many rows of a cut two arrays differ; 0 where they differ in the middle of a shard too."""
    if found.shape != right.shape or found.ndim <= axis or found.shape[axis] != sum(sizes):
        return 0
    rows = np.moveaxis(~close(found, right), axis, 0).reshape(sum(sizes), -1).any(axis=1)
    cuts, numbers = np.cumsum(sizes)[:-1, np.newaxis], np.arange(sum(sizes))
    far = np.min(np.where(numbers >= cuts, numbers - cuts + 1, cuts - numbers), axis=0)
    reach = int(np.max(far, initial=0, where=rows))
    return reach if 2 * reach < min(sizes) else 0


def counted_anew(search: Search, step: Step, other: Step | None) -> str:
    """Which whole numbers a step reads that are the reference's but for another constant in each shard."""
    group, whole = search.groups[id(step)], {name: each for each in search.whole for name in each.outputs}
    for number in range(len(step.inputs)):
        if other is not None and "Segment" in step.kind and _has_fewer_rows(step, other):
            continue  # the rows of its result are numbered in it
        if is_counted_by_gradient(search, step.inputs[number]):
            continue
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


def is_counted_by_gradient(search: Search, name: int) -> bool:
    """Whether a gradient counts rows itself: those of its own shard, as what it works on are its own."""
    maker = search.maker.get(name)
    return maker is not None and bool(maker.gradient_of) and name not in search.from_data


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
