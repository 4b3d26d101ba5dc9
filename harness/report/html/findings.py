"""Results that are more than a plain pass, the worst first."""

from __future__ import annotations

from dataclasses import dataclass

from harness.records import CheckResult, Finding, RunRecord, Verdict
from harness.report.printable import device_label
from harness.report.verdicts import by_severity, effective_verdict, needs_attention, replay_of

#: Findings shown of one check; ``run.json`` has all of them.
MOST_FINDINGS = 40
#: Longer facts, such as tracebacks, are folded away.
_LONG = 240
#: Longer facts are cut; ``run.json`` has all of them.
_LONGEST = 8000


@dataclass(frozen=True, slots=True)
class FindingView:
    """One finding; ``expected`` and ``found`` are folded away where they are long."""

    finding: Finding
    device: str
    expected: str
    found: str
    long: bool


@dataclass(frozen=True, slots=True)
class ResultView:
    """One result with its findings; ``more`` are only in ``run.json``. ``reason`` is empty if a finding repeats it."""

    result: CheckResult
    verdict: Verdict
    reason: str
    findings: tuple[FindingView, ...]
    more: int
    replay: str | None


def results_to_show(record: RunRecord) -> tuple[ResultView, ...]:
    """List the results that need attention, the worst first."""
    return tuple(_view(record, result) for result in by_severity(record.results) if needs_attention(result))


def _view(record: RunRecord, result: CheckResult) -> ResultView:
    worst_first = sorted(result.findings, key=lambda finding: finding.severity is not Verdict.FAIL)
    return ResultView(
        result,
        effective_verdict(result),
        "" if _says_the_same(result) else result.reason,
        tuple(_finding(finding) for finding in worst_first[:MOST_FINDINGS]),
        max(0, len(result.findings) - MOST_FINDINGS),
        replay_of(record, result),
    )


def _says_the_same(result: CheckResult) -> bool:
    if len(result.findings) != 1:
        return False
    (finding,) = result.findings
    return result.reason in (finding.message, f"{finding.kind}: {finding.message}")


def _finding(finding: Finding) -> FindingView:
    expected, found = _cut(device_label(finding.expected)), _cut(device_label(finding.found))
    long = len(expected) + len(found) > _LONG or "\n" in expected + found
    return FindingView(finding, device_label(finding.device), expected, found, long)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
