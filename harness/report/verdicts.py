"""Results in order of severity, totals, and colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness.plural import plural
from harness.records import CheckResult, Exercised, RunRecord, Verdict

#: Colour of each verdict. The word is always shown too: colour is never the only sign.
STYLES = {
    Verdict.PASS: "green",
    Verdict.WARN: "yellow",
    Verdict.FAIL: "bold red",
    Verdict.SKIP: "cyan",
    Verdict.UNKNOWN: "bold magenta",
}
#: What else than the command line makes records, by the programs of their commands.
OTHER_PROGRAMS = {"pytest": "pytest --harness-report", "python": "harness.write_report"}
#: The worst first.
SEVERITY = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN, Verdict.SKIP, Verdict.PASS)


def needs_attention(result: CheckResult) -> bool:
    """Whether the result is more than a plain pass."""
    return result.verdict is not Verdict.PASS or bool(result.findings)


def by_severity(results: Iterable[CheckResult]) -> list[CheckResult]:
    """Sort the results, the worst first, otherwise in their order."""
    return sorted(results, key=lambda result: SEVERITY.index(result.verdict))


def counts(results: Iterable[CheckResult]) -> dict[Verdict, int]:
    """Count the results of each verdict that occurs."""
    given = [result.verdict for result in results]
    return {verdict: given.count(verdict) for verdict in SEVERITY if verdict in given}


def not_run(record: RunRecord) -> tuple[str, ...]:
    """List the planned checks without a result."""
    done = {result.check for result in record.results}
    return tuple(check for check in record.planned if check not in done)


def finished(record: RunRecord) -> str:
    """Say how many of the planned checks have a result: ``17 checks``, or ``5 of 17 checks`` where some have none."""
    planned, missing = plural(len(record.planned), "check"), len(not_run(record))
    return f"{len(record.planned) - missing:,} of {planned}" if missing else planned


def spec_and_devices(record: RunRecord) -> str:
    """Give the device spec and, where it leaves them to the machine, the devices of TensorFlow: ``auto (2 CPUs)``."""
    kinds = Counter(card.kind for card in record.cards if card.device)
    devices = " and ".join(plural(number, kind) for kind, number in kinds.items())
    return f"{record.spec} ({devices})" if devices and record.spec in ("auto", "gpu") else record.spec


def command_name(record: RunRecord) -> str:
    """Name the command that made the record."""
    program, *rest = record.command or ("harness",)
    if program in OTHER_PROGRAMS:
        return OTHER_PROGRAMS[program]
    return f"harness {rest[0] if rest[:1] in (['burnin'], ['check']) else 'validate'}"


def is_of_machine(record: RunRecord) -> bool:
    """Whether the run was to say something about the machine, not about programs alone."""
    return command_name(record) in ("harness validate", "harness burnin")


def all_exercised(record: RunRecord) -> Exercised:
    """Add up what all checks exercised."""
    return sum((result.exercised for result in record.results), Exercised())


def replay_of(record: RunRecord, result: CheckResult) -> str | None:
    """Give the command that reruns the check alone; ``None`` for a described machine, whose file is unknown."""
    if result.replay is not None:
        return result.replay
    if record.described or not is_of_machine(record):
        return None
    devices = f" --devices {record.spec}" if record.spec else ""
    return f"harness validate --only {result.check}{devices} --level {record.level}"
