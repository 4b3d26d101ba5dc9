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
from dataclasses import replace
from functools import partial

from harness.checking.check import Check, CheckContext, Level, skipped, unknown
from harness.checking.stations import bounded, certain, confirmed, of_description, through
from harness.devices.lost import naming_hosts
from harness.errors import EvidenceError
from harness.extras import missing_extra
from harness.records import CheckResult, Exercised, Finding, Verdict
from harness.runner.users_error import one_line


def execute(check: Check, context: CheckContext) -> CheckResult:
    """Run ``check`` and apply the rules. ``elapsed_s`` of the result is wall-clock time in seconds."""
    started = time.perf_counter()
    unmet = check.unmet(context.devices)
    described = check.reads if context.described else ()
    stations = (bounded, partial(_second_pass, check, context), partial(of_description, read=described))
    result = through(skipped(*unmet) if unmet is not None else _ran(check, context), stations)
    return replace(
        result,
        check=check.id,
        elapsed_s=time.perf_counter() - started,
        spec=context.devices.spec,
        measured={name: float(value) for name, value in result.measured.items()},
    )


def _second_pass(check: Check, context: CheckContext, first: CheckResult) -> CheckResult:
    # A device that a call has never given back cannot be used again.
    spent = getattr(context.machine, "spent", False)
    if not check.hardware or first.verdict is not Verdict.FAIL or spent:
        return first
    if context.level is Level.QUICK and certain(first):
        return first
    return confirmed(first, bounded(_ran(check, context)))


def _ran(check: Check, context: CheckContext) -> CheckResult:
    try:
        return check.run(context)
    except EvidenceError as error:
        return unknown(f"no evidence: {error}", "use a supported version of TensorFlow")
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            return _raised(check, error)
        return skipped(str(missing), "install the extra and rerun")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary between the checks: the rest must go on
        raised = _raised(check, error)
    gc.collect()  # what the check has held would be missing from its second pass and from the next one
    return raised


def _raised(check: Check, error: BaseException) -> CheckResult:
    what = naming_hosts(one_line(error), error)
    found = "".join(traceback.format_exception(error))
    finding = Finding("error", f"check {check.id}", None, "the check completes", found, f"raised {what}")
    next_step = f"read the traceback in run.json; rerun with --only {check.id}"
    return CheckResult(check.id, Verdict.FAIL, f"raised {what}", next_step, Exercised(), (finding,))
