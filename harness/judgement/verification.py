"""What ``harness.verify`` returns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.notebook import block, listed, small
from harness.plural import plural
from harness.records import Exercised, Finding, Verdict

_THIS_HOST = re.compile(r"/job:localhost/replica:0/task:0/device:(?=[A-Z]+:\d)")

#: Kinds of finding that say what the programs computed; their message begins with the cause.
VALUE_KINDS = frozenset({"value", "shape", "dtype", "gradient", "missing-gradient", "nondeterminism"})
#: Kinds that say where something ran or is.
PLACE_KINDS = frozenset(
    {
        "op-placement",
        "gradient-placement",
        "unused-device",
        "variable-placement",
        "transfer",
        "shared-gpu",
        "repeated-work",
        "serial-devices",
    }
)
#: So many findings are printed at most, lines of evidence for the first, and lines with the verdict.
_FINDINGS, _EVIDENCE, _LINES = 3, 2, 10
#: How the list of what is not the cause begins, which everything shows.
_REFUSED = ("Ruled out: ", "Not tried")

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

    def __repr__(self) -> str:
        return f"<Verification {self.verdict}: {self.reason} ({self.exercised})>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, its sentence, the findings, and the ops of each device."""
        from harness.evidence.table import html

        trace = next(iter(self.traces.values()), None)
        found, ops = listed([line.strip() for line in self.lines()]), "" if trace is None else html(trace)
        return block(str(self.verdict), [self.reason], small(str(self.exercised)), found, ops)

    def lines(self, *, everything: bool = False) -> list[str]:
        """The findings, one line each: the most important, with two lines of evidence, or everything.

        With the verdict and what was exercised, these are ten lines at most. Everything includes what is not proved, or
        refuted.
        """
        if everything:
            lines = self._lines(len(self.findings), everything=True)
            return lines if self.proof is None or self.proof.proved else [*lines, *str(self.proof).splitlines()]
        return next(
            lines for most in range(_FINDINGS, 0, -1) if len(lines := self._lines(most)) <= _LINES - 2 or most == 1
        )

    def _lines(self, most: int, *, everything: bool = False) -> list[str]:
        lines: list[str] = []
        shown = self.findings[:most]
        for finding in shown:
            # The first line of a failure has said what its cause is.
            told = not everything and self._is_told(finding)
            placed = told and finding.kind in PLACE_KINDS and finding.where in self.reason
            first, *more = describe(finding, told=told, placed=placed).splitlines()
            lines.extend([first, *more] if everything or not more else [f"{first} …"])
            if finding.next_step:
                lines.append(f"  next: {finding.next_step}")
            evidence = finding.follows
            if not everything:
                evidence = evidence if finding is self.findings[0] and finding.kind in VALUE_KINDS else ()
                evidence = tuple(line for line in evidence if not line.startswith(("[", *_REFUSED)))[:_EVIDENCE]
            lines.extend(f"  - {line}" for line in evidence)
        rest = len(self.findings) - len(shown)
        lines.extend([f"and {plural(rest, 'more finding')} (see .findings; pytest -v prints all)"] if rest else [])
        return lines

    def _is_told(self, finding: Finding) -> bool:
        """Whether the verdict's line has said this."""
        fault = finding.message.partition("; ")[0].rstrip(".")
        return finding.kind in VALUE_KINDS | PLACE_KINDS | {"error"} and fault.casefold() in self.reason.casefold()


def describe(finding: Finding, *, told: bool = False, placed: bool = False) -> str:
    """A finding in one line, without its message if that was ``told`` before, nor its place if that was."""
    where = finding.mode if placed and finding.mode else finding.place
    place = f" on {finding.device}" if finding.device and finding.device not in finding.place else ""
    values = f"expected {finding.expected}, found {finding.found}"
    text = values if told else f"{finding.message} ({values})"
    cause = f", {finding.cause}" if finding.cause else ""
    # Devices of this host need no more than their kind and number.
    return _THIS_HOST.sub("", f"[{finding.code} {finding.kind}{cause}] {where}{place}: {text}")
