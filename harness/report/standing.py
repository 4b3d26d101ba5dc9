"""What a result counts as, the order in which people want to read results, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterable

from harness.records import CheckResult, Exercised, RunRecord, Verdict

#: From what has to be looked at first to what need not be looked at.
SEVERITY = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN, Verdict.SKIP, Verdict.PASS)


def standing(result: CheckResult) -> Verdict:
    """The verdict of ``result``; a FAIL that is accepted as known counts as WARN."""
    accepted = result.accepted_as is not None and result.verdict is Verdict.FAIL
    return Verdict.WARN if accepted else result.verdict


def to_tell(result: CheckResult) -> bool:
    """Whether there is more to say of the result than that it passed."""
    return standing(result) is not Verdict.PASS or bool(result.findings)


def by_severity(results: Iterable[CheckResult]) -> list[CheckResult]:
    """The results, the worst first, otherwise in their order."""
    return sorted(results, key=lambda result: SEVERITY.index(standing(result)))


def counts(results: Iterable[CheckResult]) -> dict[Verdict, int]:
    """How many results there are of each verdict that there is."""
    given = [standing(result) for result in results]
    return {verdict: given.count(verdict) for verdict in SEVERITY if verdict in given}


def not_run(record: RunRecord) -> tuple[str, ...]:
    """The checks that were planned and have no result."""
    done = {result.check for result in record.results}
    return tuple(check for check in record.planned if check not in done)


def all_exercised(record: RunRecord) -> Exercised:
    """What all checks together exercised."""
    total = Exercised()
    for result in record.results:
        total += result.exercised
    return total


def replay_of(record: RunRecord, result: CheckResult) -> str | None:
    """The command that runs the check alone again; ``None`` where a described machine is needed and not known."""
    if result.replay is not None:
        return result.replay
    if record.described:
        return None
    devices = f" --devices {record.spec}" if record.spec else ""
    return f"harness validate --only {result.check}{devices} --level {record.level}"
