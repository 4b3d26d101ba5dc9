"""What ``harness.distribute.equivalent`` returns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.judgement.verification import Verification

if TYPE_CHECKING:
    from harness.evidence.trace import Trace


@dataclass(frozen=True, slots=True)
class CollectiveCount:
    """What a device gave to the collectives of one step. ``size_bytes`` is ``None`` where it is not known of each."""

    loop: str
    type: str
    device: str
    count: int
    size_bytes: int | None


@dataclass(frozen=True)
class Equivalence(Verification):
    """The judgement of a training under a strategy: a :class:`~harness.judgement.verification.Verification`.

    ``strategy`` is the name that was asked for, ``loops`` what was run, ``steps`` how many steps each took.
    ``collectives`` are those of one step, per device. ``measured`` holds figures, by name with the unit in it.
    """

    strategy: str = ""
    loops: tuple[str, ...] = ()
    steps: int = 0
    collectives: tuple[CollectiveCount, ...] = ()
    measured: dict[str, float] = field(default_factory=dict)


def count_collectives(trace: Trace, loop: str) -> list[CollectiveCount]:
    """The collectives of a trace, added up for each type and device."""
    groups: dict[tuple[str, str], list[int | None]] = {}
    for collective in trace.collectives:
        groups.setdefault((collective.type, str(collective.device)), []).append(collective.size_bytes)
    return [
        CollectiveCount(loop, type_, device, len(sizes), _sum(sizes))
        for (type_, device), sizes in sorted(groups.items())
    ]


def _sum(sizes: Iterable[int | None]) -> int | None:
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total
