"""Results that are more than a plain pass, the worst first."""

from __future__ import annotations

from harness.records import CheckResult, Finding, RunRecord, Verdict
from harness.report.printable import device_label
from harness.report.verdicts import by_severity, needs_attention, replay_of

#: Findings shown of one check; ``run.json`` has all of them.
MOST_FINDINGS = 40
#: Longer facts, such as tracebacks, are folded away.
_LONG = 240
#: Longer facts are cut; ``run.json`` has all of them.
_LONGEST = 8000


def results_to_show(record: RunRecord) -> list[dict[str, object]]:
    """List the results that need attention, the worst first. ``more`` findings of each are only in ``run.json``."""
    return [
        {
            "result": result,
            "reason": "" if _says_the_same(result) else result.reason,
            "findings": [_view(finding) for finding in _worst_first(result)[:MOST_FINDINGS]],
            "more": max(0, len(result.findings) - MOST_FINDINGS),
            "replay": replay_of(record, result),
        }
        for result in by_severity(record.results)
        if needs_attention(result)
    ]


def _worst_first(result: CheckResult) -> list[Finding]:
    return sorted(result.findings, key=lambda finding: finding.severity is not Verdict.FAIL)


def _says_the_same(result: CheckResult) -> bool:
    if len(result.findings) != 1:
        return False
    (finding,) = result.findings
    said = result.reason in (finding.message, f"{finding.kind}: {finding.message}")
    # A verification names the fault of its finding, the ops and the remedy, in this order.
    fault, _, remedy = finding.message.partition("; ")
    return said or (bool(remedy) and fault.casefold() in result.reason.casefold() and result.reason.endswith(remedy))


def _view(finding: Finding) -> dict[str, object]:
    expected, found = (_cut(device_label(fact)) for fact in (finding.expected, finding.found))
    long = len(expected) + len(found) > _LONG or "\n" in expected + found
    return {"finding": finding, "expected": expected, "found": found, "long": long}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
