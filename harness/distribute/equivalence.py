"""What ``harness.distribute.equivalent`` returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.judgement.verification import Verification
from harness.records import Exercised, Finding, Verdict

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


def conclude(
    findings: Sequence[Finding], undecided: Sequence[str], exercised: Exercised, passed: str, *, traced: bool = True
) -> tuple[Verdict, str]:
    """The verdict and its reason; ``passed`` is that of a PASS.

    ``traced`` says whether the ops of a step can be seen under this strategy: where they can, none is no proof, and
    where they cannot, the reason says so.
    """
    severities = {finding.severity for finding in findings}
    if Verdict.FAIL in severities:
        return Verdict.FAIL, f"{len(findings)} finding(s): {', '.join(sorted({each.kind for each in findings}))}"
    if undecided:
        return Verdict.UNKNOWN, "; ".join(undecided)
    if exercised.nothing or (traced and not exercised.ops):
        return Verdict.UNKNOWN, "no op was traced that computes, so nothing is proven about where it ran"
    return (
        Verdict.WARN if severities else Verdict.PASS,
        passed if traced else f"{passed}; where their ops ran cannot be seen, and is not proven",
    )


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
