"""Turns an examination into a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from harness.evidence.arithmetic import proven
from harness.judgement.accepted import Acceptance, accepted, accepts
from harness.judgement.diagnosis.explain import explain, merged
from harness.judgement.diagnosis.wording import first_upper, listed
from harness.judgement.other_numbers import ROWS_ALIKE
from harness.judgement.placement import gradient_ops, removed
from harness.judgement.proving import is_rounding, only_rounding, refutations, with_proof
from harness.judgement.runs import rows_alike, rows_of
from harness.judgement.values import EXACT
from harness.judgement.verification import PLACE_KINDS, VALUE_KINDS, Verification, describe
from harness.plural import plural
from harness.proof.claim import Proof
from harness.proof.sentence import claim
from harness.records import Exercised, Finding, Verdict

#: So many of the variables that are not compared are named.
_SHOWN = 3

if TYPE_CHECKING:
    from harness.judgement.examine import Examination


def conclude(
    examination: Examination,
    acceptances: Sequence[Acceptance] = (),
    standing: Sequence[Acceptance] = (),
    proof: Proof | None = None,
    *,
    required: bool = False,
) -> Verification:
    """FAIL with a failing finding; else UNKNOWN if something, or everything, could not be judged; else PASS.

    ``standing`` are acceptances of the whole project, which need not occur in each verification.
    """
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
    exact = {(each.mode, each.where) for each in judged.comparisons if each.rule == EXACT}
    explained, undecided = explain(
        examination.questions,
        refutations(proof),
        lambda finding: accepts(finding, (*acceptances, *standing)),
        partial(is_rounding, proof, exact),
        partial(only_rounding, proof),
    )
    # Of a reference whose runs differ, all else that could not be judged may be a consequence.
    judged.undecided[:] = undecided or judged.undecided
    known = [*explained, *merged(judged.findings)]
    # What differs in a row follows from where the rows are.
    known.sort(key=lambda finding: finding.kind != "shape" or bool(finding.cause))
    findings, outdated = accepted(_without_idle_devices(known, examination), acceptances, standing)
    verdict = Verdict.PASS
    own = hasattr(examination.reference, "is_first_device_run")
    single = f"its own run on {examination.devices[0].parsed.short}" if own else "the single-device run"
    reason = f"the run on {examination.devices.counted} matches {single}, and every op ran where it should"
    if any(finding.severity is Verdict.FAIL for finding in findings):
        verdict, reason = Verdict.FAIL, cause_first([each for each in findings if each.severity is Verdict.FAIL])
    elif judged.undecided:
        verdict, reason = Verdict.UNKNOWN, "; ".join(judged.undecided)
    elif exercised.ops == 0:
        verdict, reason = (
            Verdict.UNKNOWN,
            "no traced op computes or moves data inside a device scope, so placement is not proven",
        )
    elif examination.asked and not any(c.where.startswith("gradient") for c in judged.comparisons):
        verdict = Verdict.UNKNOWN
        reason = "gradients=True, but there are no gradients to compare; give a floating-point input or variables=[...]"
    elif not judged.comparisons and not own:
        verdict, reason = Verdict.UNKNOWN, "no value was compared, as the programs return none and update no variable"
    elif findings:
        verdict, reason = Verdict.WARN, f"{plural(len(findings), 'finding')}, none a failure"
    if verdict is Verdict.PASS and not judged.comparisons:
        reason = (
            "every op ran where it should; no value was compared, as the program returns none and updates no variable"
        )
    elif verdict is Verdict.PASS:
        reason = with_proof(reason, proof)
    if required and verdict in (Verdict.PASS, Verdict.WARN) and (proof is None or not proof.proved):
        verdict, reason = (
            Verdict.FAIL,
            f"a proof is required: {claim(proof) if proof is not None else 'no graph was run'}",
        )
    if (
        verdict is Verdict.PASS
        and len(examination.devices) > 1
        and not (proof is not None and proof.proved)
        and rows_alike(examination.parallel, examination.inputs)
    ):
        reason += ROWS_ALIKE
    if verdict is Verdict.PASS and examination.shared.of_reference:
        others = sorted(examination.shared.of_reference)
        shown = f"{', '.join(others[:_SHOWN])}{', …' if len(others) > _SHOWN else ''}"
        reason += f". Not compared, as only the reference uses them: {shown}; to compare them, give variables=[...]"
    if verdict is Verdict.PASS:
        reason += _why_fewer(examination, exercised.devices)
    if outdated:
        verdict = Verdict.WARN if verdict is Verdict.PASS else verdict
        reason = f"{reason}. Accepted, but no longer found; remove from accept: {', '.join(outdated)}"
    comparisons = tuple(judged.comparisons)
    return Verification(verdict, reason, findings, exercised, comparisons, dict(examination.traces), proof)


def _why_fewer(examination: Examination, ran: Sequence[str]) -> str:
    """Why some of the devices may do nothing in a program that is right; an empty text if none of them is idle."""
    idle = [device.parsed for device in examination.devices if str(device.parsed) not in ran]
    if not idle:
        return ""
    rows = rows_of(examination.parallel, examination.inputs)
    why = "TensorFlow did what they were asked for on the host, or left it out"
    if rows is not None and rows < len(examination.devices):
        why = f"the batch has {plural(rows, 'row')} for {plural(len(examination.devices), 'device')}"
    return f". {listed([device.short for device in idle])} computed nothing: {why}"


def _without_idle_devices(findings: Sequence[Finding], examination: Examination) -> Sequence[Finding]:
    """The findings; that a device is idle follows from another one that says where its work is, or that it is lost."""
    kept = list(findings)
    for idle in [finding for finding in findings if finding.kind == "unused-device"]:
        devices = [device for device in examination.devices if str(device.parsed) in idle.wanted]
        modes = idle.mode.split(", ")
        for number, finding in enumerate(kept):
            elsewhere = finding.kind == "op-placement" and set(idle.wanted) <= set(finding.wanted)
            lost = finding.kind in VALUE_KINDS and all(
                removed(device, examination.traces[mode]) for mode in modes for device in devices
            )
            lost = lost and set(modes) <= set(finding.mode.split(", "))
            if elsewhere or lost or finding.kind == "transfer":
                lines = (*(finding.follows or (describe(finding),)), describe(idle))
                kept[number] = replace(finding, follows=lines)
                kept.remove(idle)
                break
    return kept


def cause_first(failures: Sequence[Finding]) -> str:
    """The first failure as a sentence, and what the others are."""
    first, *rest = failures
    reason = first.message if first.follows and first.kind in VALUE_KINDS else f"{first.where}: {first.message}"
    if first.kind in PLACE_KINDS:
        fault, semicolon, remedy = first.message.partition("; ")
        where = "" if first.where in first.message else f": {first.where}"
        reason = first_upper(f"{fault}{where}{semicolon}{remedy}")
    if rest:
        kinds = ", ".join(sorted({finding.kind for finding in rest}))
        reason = f"{reason.rstrip('.')}. {plural(len(rest), 'more finding')}: {kinds}"
    return reason
