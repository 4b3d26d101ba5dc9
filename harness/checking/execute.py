"""Runs one check under the rules that hold for all of them.

- A requirement is missing: SKIP.
- Nothing was exercised: UNKNOWN, unless a finding says what is wrong.
- A verdict is never better than its findings.
- A failing check of hardware is rerun before being reported; at quick, not if a second pass cannot change the verdict.
- A check that raises is a FAIL; one without evidence is UNKNOWN.
- On a described machine, a check says what it took from the description.
"""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Collection
from dataclasses import fields, replace

from harness.checking.check import Check, CheckContext, CheckOutcome, Level
from harness.devices.lost import naming_hosts
from harness.errors import EvidenceError
from harness.extras import missing_extra
from harness.records import CheckResult, Finding, Verdict
from harness.runner.users_error import one_line


def execute(check: Check, context: CheckContext) -> CheckResult:
    """Run ``check`` and apply the rules. ``elapsed_s`` of the result is wall-clock time in seconds."""
    started = time.perf_counter()
    unmet = check.unmet(context.devices)
    outcome = CheckOutcome(Verdict.SKIP, *unmet) if unmet is not None else _bounded(_outcome_of(check, context))
    certain = context.level is Level.QUICK and _certain(outcome)
    # A device that a call has never given back cannot be used again.
    if (
        check.hardware
        and outcome.verdict is Verdict.FAIL
        and not certain
        and not getattr(context.machine, "spent", False)
    ):
        outcome = confirmed(outcome, _bounded(_outcome_of(check, context)))
    if context.described and check.reads and outcome.verdict not in (Verdict.SKIP, Verdict.UNKNOWN):
        outcome = _of_description(outcome, check)
    reported = {field.name: getattr(outcome, field.name) for field in fields(outcome)}
    reported["measured"] = {name: float(value) for name, value in outcome.measured.items()}
    return CheckResult(check.id, elapsed_s=time.perf_counter() - started, spec=context.devices.spec, **reported)


def _of_description(outcome: CheckOutcome, check: Check) -> CheckOutcome:
    """Say that what came from a description has tested how the check reads and judges it, and no card."""
    note = f"described, not read from hardware: {' and '.join(map(str, check.reads))}"
    reason = f"{outcome.reason}; {note}" if outcome.verdict is Verdict.PASS else outcome.reason
    return replace(outcome, reason=reason, scope=(*outcome.scope, note))


def confirmed(first: CheckOutcome, second: CheckOutcome) -> CheckOutcome:
    """Join the outcome of a failed hardware check with that of its second pass.

    A busy machine looks slow for a moment, so a failure that does not recur becomes a warning. Wrong bits stay a FAIL:
    rare corruption is worse, not better.
    """
    failed = second.verdict is Verdict.FAIL
    failures = [finding for finding in second.findings if failed and finding.severity is Verdict.FAIL]
    again = {(finding.kind, finding.device) for finding in failures}
    kept = tuple(_weakened(finding, again) for finding in first.findings)
    if any(finding.severity is Verdict.FAIL for finding in kept):
        note = "confirmed by a second pass" if failed else "intermittent: not found in a second pass"
        return replace(first, findings=kept, reason=f"{first.reason} ({note})")
    if failed:
        new = tuple(each for each in kept if each not in second.findings)
        return replace(
            second,
            findings=(*second.findings, *new),
            reason=f"{second.reason} (second pass; the first pass failed differently)",
        )
    return replace(first, verdict=Verdict.WARN, findings=kept, reason=f"not confirmed by a second pass: {first.reason}")


#: Kinds of finding about wrong bits.
_LASTING = frozenset({"corruption", "memory", "nondeterminism", "arithmetic"})


def _lasts(finding: Finding) -> bool:
    return finding.lasting or finding.kind in _LASTING


def _certain(outcome: CheckOutcome) -> bool:
    """Whether each failure is of a lasting kind."""
    failures = [each for each in outcome.findings if each.severity is Verdict.FAIL]
    return bool(failures) and all(map(_lasts, failures))


def _weakened(finding: Finding, again: Collection[tuple[str, str | None]]) -> Finding:
    """Make ``finding`` a warning unless it came ``again`` or is of a lasting kind."""
    if _lasts(finding) or (finding.kind, finding.device) in again:
        return finding
    return replace(finding, severity=Verdict.WARN)


def _outcome_of(check: Check, context: CheckContext) -> CheckOutcome:
    try:
        return check.run(context)
    except EvidenceError as error:
        return CheckOutcome(Verdict.UNKNOWN, f"no evidence: {error}", "use a supported version of TensorFlow")
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            return _raised(check, error)
        return CheckOutcome(Verdict.SKIP, str(missing), "install the extra and rerun")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary between the checks: the rest must go on
        raised = _raised(check, error)
    gc.collect()  # what the check has held would be missing from its second pass and from the next one
    return raised


def _raised(check: Check, error: BaseException) -> CheckOutcome:
    what = naming_hosts(one_line(error), error)
    found = "".join(traceback.format_exception(error))
    finding = Finding("error", f"check {check.id}", None, "the check completes", found, f"raised {what}")
    next_step = f"read the traceback in run.json; rerun with --only {check.id}"
    return CheckOutcome(Verdict.FAIL, f"raised {what}", next_step, findings=(finding,))


def _bounded(outcome: CheckOutcome) -> CheckOutcome:
    """Return ``outcome`` with the verdict that its findings and its exercise allow."""
    worst = {finding.severity for finding in outcome.findings}
    if outcome.verdict is Verdict.UNKNOWN:
        return outcome
    if Verdict.FAIL in worst:
        return replace(outcome, verdict=Verdict.FAIL)
    if outcome.exercised.nothing and outcome.verdict is not Verdict.SKIP:
        return replace(
            outcome,
            verdict=Verdict.UNKNOWN,
            reason=f"nothing was exercised, although the check reported {outcome.verdict}: {outcome.reason}",
            next_step="the check itself is faulty: report this result with the check's log",
        )
    if worst and outcome.verdict is Verdict.PASS:
        return replace(outcome, verdict=Verdict.WARN)
    return outcome
