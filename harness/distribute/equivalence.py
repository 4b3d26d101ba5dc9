"""The result of ``harness.distribute.equivalent``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.evidence.arithmetic import proven
from harness.judgement.placement import gradient_ops
from harness.judgement.verdict import cause_first
from harness.judgement.verification import Verification
from harness.records import Exercised, Finding, Verdict

if TYPE_CHECKING:
    from harness.evidence.trace import Trace


@dataclass(frozen=True, slots=True)
class CollectiveCount:
    """A device's part in the collectives of one step. ``size_bytes`` is ``None`` if a size is unknown."""

    loop: str
    type: str
    device: str
    count: int
    size_bytes: int | None


@dataclass(frozen=True)
class Equivalence(Verification):
    """The judgement of a training under a strategy: a :class:`~harness.judgement.verification.Verification`.

    ``loops`` are those that were run, and ``steps`` is how many steps each took. ``collectives`` are those of one
    step, per device. ``measured`` holds figures, by names that end with the unit.
    """

    strategy: str = ""
    loops: tuple[str, ...] = ()
    steps: int = 0
    collectives: tuple[CollectiveCount, ...] = ()
    measured: dict[str, float] = field(default_factory=dict)


def conclude(
    findings: Sequence[Finding], undecided: Sequence[str], exercised: Exercised, passed: str, *, traced: bool = True
) -> tuple[Verdict, str]:
    """Return the verdict and its reason; ``passed`` is the reason of a PASS.

    ``traced`` says whether the ops of a step can be traced under this strategy. If they can, a training without any
    is UNKNOWN; if not, the reason says so.
    """
    if failures := [finding for finding in findings if finding.severity is Verdict.FAIL]:
        return Verdict.FAIL, cause_first(failures)
    if undecided:
        return Verdict.UNKNOWN, "; ".join(undecided)
    if exercised.nothing or (traced and not exercised.ops):
        return Verdict.UNKNOWN, "no computing op was traced, so nothing is proven about where ops ran"
    return (
        Verdict.WARN if findings else Verdict.PASS,
        passed if traced else f"{passed}; the ops could not be traced, so where they ran is not proven",
    )


def exercised_by(trace: Trace) -> Exercised:
    """Count the computing ops of a step, and the devices on which they ran."""
    ops = proven(trace)
    devices = tuple(sorted({str(op.device) for op in ops}))
    return Exercised(ops=len(ops), gradient_ops=gradient_ops(trace), devices=devices)


def count_collectives(trace: Trace, loop: str) -> list[CollectiveCount]:
    """Add up the collectives of a trace for each type and device."""
    groups: dict[tuple[str, str], list[int | None]] = {}
    for collective in trace.collectives:
        groups.setdefault((collective.type, str(collective.device)), []).append(collective.size_bytes)
    return [
        CollectiveCount(loop, type_, device, len(sizes), None if None in sizes else sum(filter(None, sizes)))
        for (type_, device), sizes in sorted(groups.items())
    ]
