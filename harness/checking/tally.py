"""Adds up what the parts of a check exercised and found, and says what follows."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from harness.checking.check import CheckOutcome
from harness.checking.placements import MOST_PROGRAMS, placements_of
from harness.devices.device import Devices
from harness.records import Exercised, Finding, Placement, Verdict, overall

if TYPE_CHECKING:
    from harness.judgement.verification import Verification


class Tally:
    """What a check has exercised, found and measured so far."""

    def __init__(self) -> None:
        self.exercised = Exercised()
        self.findings: list[Finding] = []
        self.measured: dict[str, float] = {}
        self.placements: list[Placement] = []
        self._unproven: list[str] = []

    def add(self, verification: Verification, where: str = "") -> None:
        """Take over what a verification exercised and found; ``where`` says which part of the check it was."""
        self.exercised += verification.exercised
        for finding in verification.findings:
            self.findings.append(_within(finding, where))
        room = MOST_PROGRAMS - len(self.placements)
        self.placements.extend(islice(placements_of(verification.traces, where), room))
        if verification.verdict in (Verdict.UNKNOWN, Verdict.SKIP):
            self._unproven.append(f"{where or 'the comparison'}: {verification.reason}")

    def count(self, exercised: Exercised) -> None:
        """Add what a part of the check exercised."""
        self.exercised += exercised

    def found(self, *findings: Finding) -> None:
        """Add findings."""
        self.findings.extend(findings)

    def unproven(self, why: str) -> None:
        """Note that something could not be proven: the check is then UNKNOWN at best."""
        self._unproven.append(why)

    def require_devices(self, devices: Devices) -> None:
        """A finding for each of ``devices`` on which nothing was proven to run, unless the check failed already."""
        failed = any(finding.severity is Verdict.FAIL for finding in self.findings)
        for name in devices.names:
            if name not in self.exercised.devices and not failed:
                self.found(
                    Finding(
                        kind="unused-device",
                        where="the whole check",
                        device=name,
                        expected="at least one op proven to run there",
                        found="none",
                        message="no op was proven to run on this device",
                    )
                )

    def outcome(self, passed: str, next_step: str) -> CheckOutcome:
        """The outcome: ``passed`` is the reason of a PASS, ``next_step`` what to do otherwise."""
        said = [Verdict.PASS, *(finding.severity for finding in self.findings)]
        verdict = overall([*said, Verdict.UNKNOWN] if self._unproven else said)
        return CheckOutcome(
            verdict=verdict,
            reason=self._reason(verdict, passed),
            next_step="" if verdict is Verdict.PASS else next_step,
            exercised=self.exercised,
            findings=tuple(self.findings),
            measured=self.measured,
            placements=tuple(self.placements),
        )

    def _reason(self, verdict: Verdict, passed: str) -> str:
        if verdict is Verdict.PASS:
            return passed
        if verdict is Verdict.UNKNOWN:
            return "; ".join(self._unproven)
        first = f"{self.findings[0].kind}: {self.findings[0].message}"
        return f"{len(self.findings)} findings, the first: {first}" if len(self.findings) > 1 else first


def _within(finding: Finding, where: str) -> Finding:
    return replace(finding, where=f"{where}: {finding.where}") if where else finding
