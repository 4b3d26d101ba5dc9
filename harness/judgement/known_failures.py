"""Known failures: a TOML file that names them, and its effect on a result.

    schema_version = 1

    [[known]]
    check = "copies"
    device = "GPU:3"            # optional: findings of this device alone
    kind = "rate"               # optional: findings of this kind alone
    reason = "slot 3 has 8 lanes on this board"
    until = 2027-01-31          # optional: from this day on it is a failure again

A result is accepted (WARN) when entries cover all of its failing findings. An entry that covers nothing any more is
reported, so that it can be removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.devices.name import DeviceName
from harness.devices.toml_file import parse_model, read_text
from harness.errors import InvalidDeviceName, InvalidKnownFailures
from harness.finding_kinds import KINDS
from harness.records import CheckResult, Finding, Verdict


class KnownFailure(BaseModel):
    """One entry."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    check: str = Field(description="the id of a check")
    reason: str = Field(description="a string")
    device: str | None = Field(default=None, description="a device name, such as 'GPU:3'")
    kind: Literal[tuple(KINDS)] | None = Field(  # type: ignore[valid-type]
        default=None, description=f"one of {', '.join(KINDS)}"
    )
    until: date | None = Field(default=None, description="a date: 2027-01-31")

    def __str__(self) -> str:
        parts = (self.check, self.kind, self.device)
        return f"{' '.join(part for part in parts if part)}: {self.reason}"

    def covers(self, check: str, finding: Finding) -> bool:
        """Whether this entry accepts a finding."""
        return (
            self.check == check
            and self.kind in (None, finding.kind)
            and (self.device is None or (finding.device is not None and _same(self.device, finding.device)))
        )


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")

    schema_version: Literal[1] = Field(description="1")
    known: tuple[KnownFailure, ...] = Field(default=(), description="a list of tables, each headed [[known]]")


def load_known_failures(path: Path, checks: Sequence[str]) -> tuple[KnownFailure, ...]:
    """Read the file. ``checks`` are the ids of all checks.

    Raise InvalidKnownFailures if it cannot be read, or with the first wrong key.
    """
    known = parse_model(path, read_text(path, InvalidKnownFailures), _Document, InvalidKnownFailures).known
    for number, entry in enumerate(known):
        if entry.check not in checks:
            raise InvalidKnownFailures(path, f"known[{number}].check", entry.check, f"one of {', '.join(checks)}")
    return known


def accept_known(result: CheckResult, known: Iterable[KnownFailure], today: date) -> CheckResult:
    """Return ``result`` as WARN if entries cover every failing finding, else unchanged."""
    failures = [finding for finding in result.findings if finding.severity is Verdict.FAIL]
    if result.verdict is not Verdict.FAIL or not failures:
        return result
    entries = [entry for entry in known if entry.until is None or today < entry.until]
    covering = [next((entry for entry in entries if entry.covers(result.check, finding)), None) for finding in failures]
    if None in covering:
        return result
    names = "; ".join(dict.fromkeys(str(entry) for entry in covering))
    reason = f"known and accepted ({names}): {result.reason}"
    return replace(result, verdict=Verdict.WARN, accepted_as=names, reason=reason)


def no_longer_failing(known: Iterable[KnownFailure], results: Iterable[CheckResult]) -> tuple[str, ...]:
    """Describe the entries whose failure no longer occurs: their check ran without a finding that they cover."""
    by_check = {result.check: result for result in results}
    return tuple(
        str(entry)
        for entry in known
        if (result := by_check.get(entry.check)) is not None
        and result.verdict in (Verdict.PASS, Verdict.WARN, Verdict.FAIL)
        and not any(entry.covers(entry.check, finding) for finding in result.findings)
    )


def _same(text: str, device: str) -> bool:
    """Whether ``text`` (``GPU:3``, ``GPU:1->GPU:3`` or a full name) is the device that a finding names."""
    if text == device:
        return True
    try:
        return DeviceName.parse(text).short == DeviceName.parse(device).short
    except InvalidDeviceName:
        return False
