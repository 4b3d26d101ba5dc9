"""What is wrong and what to do: the results that are more than a pass, the worst first."""

from __future__ import annotations

from dataclasses import dataclass

from harness.records import CheckResult, Finding, RunRecord, Verdict
from harness.report.printable import device_label
from harness.report.standing import by_severity, replay_of, standing, to_tell

#: Findings of one check that are shown; all of them are in ``run.json``.
MOST_FINDINGS = 40
#: Longer facts, such as tracebacks, are folded away.
_LONG = 240
#: Longer facts are cut; ``run.json`` has them whole.
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
    """One result with its findings; ``more`` of them are in ``run.json`` alone.

    ``reason`` is empty where it says what the only finding says.
    """

    result: CheckResult
    verdict: Verdict
    reason: str
    findings: tuple[FindingView, ...]
    more: int
    replay: str | None


def told_results(record: RunRecord) -> tuple[ResultView, ...]:
    """The results that are no plain pass."""
    return tuple(_view(record, result) for result in by_severity(record.results) if to_tell(result))


def _view(record: RunRecord, result: CheckResult) -> ResultView:
    worst_first = sorted(result.findings, key=lambda finding: finding.severity is not Verdict.FAIL)
    return ResultView(
        result,
        standing(result),
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
    # Where a finding is about a device, its short name is what people look for.
    expected, found = _cut(device_label(finding.expected)), _cut(device_label(finding.found))
    long = len(expected) + len(found) > _LONG or "\n" in expected + found
    return FindingView(finding, device_label(finding.device), expected, found, long)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
