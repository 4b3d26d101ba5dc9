"""Adds up what the parts of a check exercised and found, and derives its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from harness.devices.device import Devices
from harness.records import CheckResult, Exercised, Figure, Finding, PlacedOp, Placement, Series, Verdict, overall

if TYPE_CHECKING:
    from harness.evidence.trace import Trace
    from harness.judgement.verification import Verification

#: Programs of one check that are kept, and ops of each: enough to see a pattern, and a record that opens at once.
MOST_PROGRAMS = 4
MOST_OPS = 200


class Tally:
    """Collects what a check has exercised, found and measured so far."""

    def __init__(self) -> None:
        self.exercised = Exercised()
        self.findings: list[Finding] = []
        self.measured: dict[str, float] = {}
        self.figures: list[Figure] = []
        self.series: list[Series] = []
        self.placements: list[Placement] = []
        self.scope: list[str] = []
        #: Why, and what to do.
        self._unproven: list[tuple[str, str]] = []

    def add(self, verification: Verification, where: str = "") -> None:
        """Add what a verification exercised and found; ``where`` names the part of the check."""
        self.exercised += verification.exercised
        for finding in verification.findings:
            self.findings.append(replace(finding, where=f"{where}: {finding.where}") if where else finding)
        room = MOST_PROGRAMS - len(self.placements)
        self.placements.extend(islice(_placements_of(verification.traces, where), room))
        if verification.verdict in (Verdict.UNKNOWN, Verdict.SKIP):
            self.unproven(f"{where or 'the comparison'}: {verification.reason}")

    def found(self, *findings: Finding | None) -> None:
        """Add findings, leaving out ``None``."""
        self.findings += [each for each in findings if each is not None]

    def fail(
        self, kind: str, where: str, expected: str, found: str, message: str = "", device: str | None = None
    ) -> None:
        """Add a finding of severity FAIL. By default the message is what was expected there, and what was found."""
        message = message or f"{where}: expected {expected}, found {found}"
        self.findings.append(Finding(kind, where, device, expected, found, message))

    def unproven(self, why: str, next_step: str = "") -> None:
        """Note what could not be proven: a check without a FAIL is then UNKNOWN."""
        self._unproven.append((why, next_step))

    def require_devices(self, devices: Devices) -> None:
        """Add a finding for each device on which no op was proven to run, unless the check has failed already."""
        failed = any(finding.severity is Verdict.FAIL for finding in self.findings)
        for name in devices.names:
            if name not in self.exercised.devices and not failed:
                message = "no op was proven to run on this device"
                self.fail("unused-device", "the whole check", "at least one op", "none", message, name)

    def result(self, passed: str, next_step: str) -> CheckResult:
        """Return the result: ``passed`` is the reason of a PASS, ``next_step`` what to do otherwise.

        What is unproven makes a check without a FAIL UNKNOWN.
        """
        why = "; ".join(why for why, _ in self._unproven)
        worst = [Verdict.PASS, *(each.severity for each in self.findings), *([Verdict.UNKNOWN] if why else [])]
        verdict = overall(worst)
        told = [self._told(each) for each in self.findings]
        if verdict in (Verdict.PASS, Verdict.UNKNOWN):
            reason = why or passed
        else:
            reason = f"{len(told):,} findings, the first: {told[0]}" if len(told) > 1 else told[0]
        return CheckResult(
            "",
            verdict,
            reason,
            "" if verdict is Verdict.PASS else next_step,
            self.exercised,
            tuple(self.findings),
            measured=self.measured,
            figures=tuple(self.figures),
            series=tuple(self.series),
            placements=tuple(self.placements),
            scope=tuple(self.scope),
        )

    def _told(self, finding: Finding) -> str:
        return f"{finding.kind}: {finding.message}"


def _placements_of(traces: Mapping[str, Trace], where: str) -> Iterator[Placement]:
    """Return the placement of each of ``traces``, by mode, that has an op on a proven device.

    ``where`` names the part of the check. Ops without a proven device are left out and not counted.
    """
    for mode, trace in traces.items():
        proven = [(op, str(op.device)) for op in trace.ops if op.device is not None]
        if proven:
            kept = enumerate(proven[:MOST_OPS])
            ops = tuple(PlacedOp(order, op.name, op.type, device, op.role) for order, (op, device) in kept)
            yield Placement(f"{where or 'the program'} ({mode})", ops, len(proven))
