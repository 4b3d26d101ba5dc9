"""Rows beside a cut that lack those of the neighbouring shard, as where the rows of a convolution are split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from harness.judgement.diagnosis.joins import Join
from harness.judgement.diagnosis.layout import Layout
from harness.judgement.diagnosis.question import Array, Leaf, Question
from harness.judgement.diagnosis.recorded import Step, close
from harness.lazy import tf
from harness.plural import plural

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search


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
    """Of a step on each device that the reference runs once: whether its rows beside the cuts alone differ."""
    parts = [each.first for each in search.groups[id(step)] if each.results]
    known = [part for part in parts if part is not None and part.ndim]
    right = other.first if other is not None and other.kind == step.kind else None
    if right is None or len(known) < max(len(parts), 2) or any(part.ndim != right.ndim for part in known):
        return ""
    for axis in range(right.ndim):
        sizes = [part.shape[axis] for part in known]
        joined = Join("concat", axis).of(known, sizes)
        if joined is not None and (reach := _beside_cuts(joined, right, axis, sizes)):
            lacking = f"it lacks {'positions' if axis else 'rows'} of the neighbouring shard"
            return f"its result differs only {beside(reach, axis)} along axis {axis}: {lacking}"
    return ""


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
