"""Turns an examination into a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.judgement.arithmetic import proven
from harness.judgement.placement import gradient_ops
from harness.judgement.verification import Verification
from harness.plural import plural
from harness.records import Exercised, Verdict

if TYPE_CHECKING:
    from harness.judgement.examine import Examination


def conclude(examination: Examination) -> Verification:
    """FAIL with a failing finding; else UNKNOWN if something, or everything, could not be judged; else PASS."""
    judged = examination.judged
    traces = examination.traces.values()
    # A program that computes nothing, such as a reshape, is proven by the ops that move data in a scope.
    ops = [op for trace in traces for op in proven(trace)] or [
        op for trace in traces for op in trace.ops if op.device and op.requested and op.role == "forward"
    ]
    exercised = Exercised(
        programs=examination.programs,
        values=judged.compared - examination.gradient_values,
        gradients=examination.gradient_values,
        ops=len(ops),
        gradient_ops=sum(gradient_ops(trace) for trace in examination.traces.values()),
        devices=tuple(sorted({str(op.device) for op in ops})),
    )
    findings = tuple(judged.findings)
    devices = plural(len(examination.devices), "device")
    verdict = Verdict.PASS
    reason = f"the run on {devices} matches the single-device run, and every op ran where it should"
    if any(finding.severity is Verdict.FAIL for finding in findings):
        kinds = sorted({finding.kind for finding in findings})
        verdict, reason = Verdict.FAIL, f"{plural(len(findings), 'finding')}: {', '.join(kinds)}"
    elif judged.undecided:
        verdict, reason = Verdict.UNKNOWN, "; ".join(judged.undecided)
    elif exercised.ops == 0:
        verdict, reason = (
            Verdict.UNKNOWN,
            "no traced op computes, or moves data in a device scope, so placement is not proven",
        )
    elif examination.gradients and not any(c.where.startswith("gradient") for c in judged.comparisons):
        verdict, reason = Verdict.UNKNOWN, "gradients=True, but the program has no gradients to compare"
    elif findings:
        verdict, reason = Verdict.WARN, f"{plural(len(findings), 'finding')}, none a failure"
    return Verification(verdict, reason, findings, exercised, tuple(judged.comparisons), dict(examination.traces))
