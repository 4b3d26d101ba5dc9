"""Spans: ops, kernels and copies with their times and devices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from harness.speed.timeline.intervals import Intervals, union

#: Kinds of activity. ``input``: waiting for or making the next batch of a ``tf.data`` pipeline.
Kind = Literal["compute", "transfer", "collective", "input"]
KINDS: tuple[Kind, ...] = ("compute", "transfer", "collective", "input")


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


def busy(spans: Iterable[Span], device: str | None, *kinds: Kind) -> Intervals:
    """Give the intervals in which a device did something of these kinds (by default of all)."""
    return union(
        (span.begin_ns, span.end_ns) for span in spans if span.device == device and (not kinds or span.kind in kinds)
    )
