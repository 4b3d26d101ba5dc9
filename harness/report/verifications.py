"""Verifications as the record of a run, and its reports: those of ``harness validate``, with the same page."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.devices.fingerprint import fingerprint
from harness.devices.runtime import current
from harness.errors import UsageError
from harness.judgement.verification import Verification
from harness.records import CheckResult
from harness.report.recording import RunRecording

if TYPE_CHECKING:
    from harness.records import Fingerprint


def write_report(verifications: Verification | Mapping[str, Verification], folder: str | Path) -> Path:
    """Write ``report.html``, ``run.json``, ``report.md`` and ``junit.xml``, and return the path of the page.

    The page is like that of ``harness validate``: the verdict, the findings, and where the programs' ops ran.

    Args:
        verifications: what :func:`harness.verify` returned, or several of them by the names that the page is to use.
        folder: where to write; it is created if need be.

    Examples:
        >>> page = harness.write_report(harness.verify(step, inputs={"x": x}), "report")

    Raises:
        UsageError: there is no verification.
        ReportError: the folder cannot be written.
        MissingExtra: Jinja or Matplotlib is not installed; the other files are written.
    """
    given = {"verification": verifications} if isinstance(verifications, Verification) else verifications
    if not isinstance(given, Mapping) or not all(isinstance(each, Verification) for each in given.values()):
        raise UsageError("write_report: give what harness.verify returned, or a mapping of names to such results")
    if not given:
        raise UsageError("write_report: no verification; give what harness.verify returned")
    devices = current()
    results = tuple(result_of(each, name) for name, each in given.items())
    return write_results(
        results,
        Path(folder),
        command=("python", *sys.argv),
        spec=devices.spec if devices is not None else "",
        reason=devices.reason if devices is not None else "",
        facts=fingerprint(devices),
    )


def result_of(verification: Verification, name: str, elapsed_s: float = 0.0) -> CheckResult:
    """A verification as the result of a check of this name."""
    from harness.checking.tally import Tally

    tally = Tally()
    tally.add(verification)
    next_step = next((each.next_step for each in verification.findings if each.next_step), "")
    verdict, reason = verification.verdict, verification.reason
    return replace(tally.result("", next_step), check=name, verdict=verdict, reason=reason, elapsed_s=elapsed_s)


def write_results(
    results: tuple[CheckResult, ...],
    folder: Path,
    *,
    command: tuple[str, ...],
    spec: str,
    reason: str,
    facts: Fingerprint | None,
    elapsed_s: float = 0.0,
) -> Path:
    """Write the reports of these results, and return the path of the page. Raise as :func:`write_report` does."""
    recording = RunRecording(
        folder,
        harness=sys.modules["harness"].__version__,
        command=command,
        spec=spec,
        planned=tuple(result.check for result in results),
        level="",
        earlier_s=elapsed_s,
    )
    if facts is not None:
        recording.devices_are(reason, facts)
    recording.results_are(results)
    recording.complete()
    for problem in (recording.problem, recording.no_page):
        if problem is not None:
            raise problem
    assert recording.page is not None
    return recording.page
