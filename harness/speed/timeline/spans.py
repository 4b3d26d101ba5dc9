"""Spans: ops, kernels and copies with their times and devices; and sets of instants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

#: Kinds of activity. ``input``: waiting for or making the next batch of a ``tf.data`` pipeline.
Kind = Literal["compute", "transfer", "collective", "input"]
KINDS: tuple[Kind, ...] = ("compute", "transfer", "collective", "input")
#: Sorted, disjoint, none empty.
Intervals: TypeAlias = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Span:
    """One op, kernel or copy. Times are ns since 1970. ``device`` is a full name, or ``None`` if unknown.

    ``eager``: Python started it directly, not as part of a function.
    """

    device: str | None
    kind: Kind
    name: str
    begin_ns: int
    end_ns: int
    eager: bool = False


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
    return _sweep([*_edges(one, 1), *_edges(other, -1)], 1)


def at_least(sets: Sequence[Intervals], count: int) -> Intervals:
    """Keep the instants that lie in ``count`` or more of the sets."""
    return _sweep([edge for each in sets for edge in _edges(each, 1)], count)


def _edges(intervals: Intervals, weight: int) -> list[tuple[int, int]]:
    return [edge for begin, end in intervals for edge in ((begin, weight), (end, -weight))]


def _sweep(edges: list[tuple[int, int]], count: int) -> Intervals:
    """Find where the weights of all edges so far add up to ``count`` or more."""
    found: list[tuple[int, int]] = []
    depth, since = 0, 0
    for at, step in sorted(edges):
        before, depth = depth, depth + step
        if before < count <= depth:
            since = at
        elif depth < count <= before:
            found.append((since, at))
    return union(found)
