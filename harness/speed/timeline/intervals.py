"""Sets of instants, as sorted pairs ``(begin, end)`` in ns that neither touch nor overlap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

#: Sorted, disjoint, none empty.
Intervals: TypeAlias = list[tuple[int, int]]


def union(parts: Iterable[tuple[int, int]]) -> Intervals:
    """Join pairs that may overlap, in any order; empty ones are dropped."""
    joined: Intervals = []
    for begin, end in sorted(parts):
        if end <= begin:
            continue
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def length(intervals: Intervals) -> int:
    """Add up the lengths, in ns."""
    return sum(end - begin for begin, end in intervals)


def intersect(one: Intervals, other: Intervals) -> Intervals:
    """Keep what lies in both."""
    return at_least([one, other], 2)


def subtract(one: Intervals, other: Intervals) -> Intervals:
    """Keep what lies in ``one`` and not in ``other``."""
    left: Intervals = []
    for begin, end in one:
        at = begin
        for cut_begin, cut_end in other:
            if cut_end <= at:
                continue
            if cut_begin >= end:
                break
            if cut_begin > at:
                left.append((at, cut_begin))
            at = max(at, cut_end)
        if at < end:
            left.append((at, end))
    return left


def at_least(sets: Sequence[Intervals], count: int) -> Intervals:
    """Keep the instants that lie in ``count`` or more of the sets."""
    edges = sorted((at, step) for each in sets for begin, end in each for at, step in ((begin, 1), (end, -1)))
    found: list[tuple[int, int]] = []
    depth, since = 0, 0
    for at, step in edges:
        before = depth
        depth += step
        if before < count <= depth:
            since = at
        elif depth < count <= before:
            found.append((since, at))
    return union(found)
