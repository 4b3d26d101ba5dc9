"""What ``harness.verify`` returns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.records import Exercised, Finding, Verdict

_THIS_HOST = re.compile(r"/job:localhost/replica:0/task:0/device:(?=[A-Z]+:\d)")

#: Kinds of finding that say what the programs computed; their message begins with the cause.
VALUE_KINDS = frozenset({"value", "shape", "dtype", "gradient", "missing-gradient", "nondeterminism"})
#: Kinds that say where something ran or is.
PLACE_KINDS = frozenset(
    {"op-placement", "gradient-placement", "unused-device", "variable-placement", "transfer", "shared-gpu"}
)
#: So many of the lines that follow from a finding are printed.
_SHOWN = 3

if TYPE_CHECKING:
    from harness.evidence.trace import Trace
    from harness.proof.claim import Proof


@dataclass(frozen=True, slots=True)
class Comparison:
    """One tensor that was compared, and by which measure.

    ``largest_error`` and ``bound`` are those of one element, in units of the tensor: of the element whose error is the
    largest share of what is allowed. So an error above its bound is always seen in them. ``compared`` counts the
    elements that the comparison could have caught a fault in.
    """

    mode: str
    where: str
    dtype: str
    elements: int
    compared: int
    largest_error: float
    bound: float
    rule: str


@dataclass(frozen=True)
class Verification:
    """The judgement of one program on one input.

    ``verdict`` is FAIL with any finding of that severity, UNKNOWN where nothing could be proven (``reason`` says why),
    WARN with a finding that is no failure, PASS otherwise.
    """

    verdict: Verdict
    reason: str
    findings: tuple[Finding, ...]
    exercised: Exercised
    comparisons: tuple[Comparison, ...] = ()
    traces: dict[str, Trace] = field(default_factory=dict)
    #: What is proved for every input; ``None`` where no proof was tried.
    proof: Proof | None = None

    @property
    def passed(self) -> bool:
        """Whether the verdict is PASS or WARN."""
        return self.verdict in (Verdict.PASS, Verdict.WARN)

    def __bool__(self) -> bool:
        raise TypeError("a Verification has no truth value; use .passed or .verdict")

    def __str__(self) -> str:
        return "\n".join([f"{self.verdict}: {self.reason}", f"exercised: {self.exercised}", *self.lines()])

    def lines(self) -> list[str]:
        """The findings, one line each, with what follows from them folded."""
        lines = []
        for finding in self.findings:
            # The first line of a failure has said what its cause is.
            told = finding.kind in VALUE_KINDS and self.reason.startswith(finding.message.rstrip("."))
            lines.append(describe(finding, told=told))
            if finding.next_step:
                lines.append(f"  next: {finding.next_step}")
            if finding.kind in VALUE_KINDS and len(finding.follows) > 1:
                lines.extend(f"  - {line}" for line in finding.follows[:_SHOWN])
                more = len(finding.follows) - _SHOWN
                lines.extend([f"  - and {more:,} more (see .follows of the finding)"] if more > 0 else [])
        return lines


def describe(finding: Finding, *, told: bool = False) -> str:
    """A finding in one line, without its message if that was ``told`` before."""
    place = f" on {finding.device}" if finding.device else ""
    values = f"expected {finding.expected}, found {finding.found}"
    text = values if told else f"{finding.message} ({values})"
    # Devices of this host need no more than their kind and number.
    return _THIS_HOST.sub("", f"[{finding.code} {finding.kind}] {finding.place}{place}: {text}")
