"""One finding for what differs: the cause and the place first, then the evidence, then what follows from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from harness.judgement.diagnosis.diagnose import diagnose
from harness.judgement.diagnosis.divergence import located
from harness.judgement.diagnosis.leaves import place_of
from harness.judgement.diagnosis.observed import draws, place_of_function
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.wording import first_upper, listed
from harness.judgement.verification import PLACE_KINDS, describe
from harness.records import Finding, Verdict

_ROUNDED = (
    "the results are proved equal in real arithmetic, and off by at most 256 units in the last place of the largest: "
    "by rounding, as where it changes the side of a ReLU at 0, or by a kernel that is less precise"
)
#: The lines in a message: ``(towers.py:41, called at towers.py:60)``.
_LINES = re.compile(r" \([^()]*:\d[^()]*\)")


def explain(
    questions: Sequence[Question],
    refutations: Mapping[str, str] = MappingProxyType({}),
    accepted: Callable[[Finding], bool] = lambda _: False,
    rounded: Callable[[Question], bool] = lambda _: False,
    proved: Callable[[Question], str] = lambda _: "",
) -> tuple[list[Finding], list[str]]:
    """One finding for each cause of differing results, and what cannot be judged.

    No cause is looked for where all findings are ``accepted``. What is ``rounded`` alone is a warning. Of what is
    ``proved`` equal, no cause in the program is true: that says what is left.
    ``refutations`` say of results, by their names, how they differ by what a proof shows: they stand first where no
    known cause gives the numbers.
    """
    known: list[tuple[Cause | None, list[Question]]] = []
    undecided: list[str] = []
    for question in questions:
        if question.reference_unsteady:
            undecided.append(_not_comparable(question))
            continue
        for _, group in known:
            same = {leaf.name for leaf in group[0].wrong} == {leaf.name for leaf in question.wrong}
            alike = group[0].unsteady == question.unsteady and rounded(group[0]) == rounded(question)
            if same and alike:
                group.append(question)
                break
        else:
            # What is not finite, or too large for a dtype, explains nothing.
            with np.errstate(all="ignore"):
                cause: Cause | None
                if all(map(accepted, question.findings)):
                    cause = Cause(f"{question.findings[0].where} differs, which is accepted: no cause was looked for")
                elif rounded(question):
                    cause = Cause(_ROUNDED, place_of_function(question.parallel.fn), severity=Verdict.WARN)
                elif left := proved(question):
                    cause = diagnose(question, lambda rule: rule.by == "platform") or Cause(
                        left, place_of_function(question.parallel.fn)
                    )
                    cause = located(question, cause)
                else:
                    cause = diagnose(question)
                    cause = cause and located(question, cause)
            also = next((group for other, group in known if cause and other and str(other) == str(cause)), None)
            if also is not None:
                also.append(question)
            else:
                known.append((cause, [question]))
    return [_finding(cause, group, refutations) for cause, group in known], list(dict.fromkeys(undecided))


def _not_comparable(question: Question) -> str:
    random = draws(question.seen_reference)
    if random:
        return (
            f"two runs of the reference differ, because it draws random numbers: {random}; switch them off "
            "(training=False), or draw the numbers before the call and give them to both programs as an input"
        )
    return (
        "two runs of the reference on the same inputs differ, but no random op ran: the reference has state that was "
        "not restored between the runs; keep this state in tf.Variables, and pass them as variables="
    )


def _finding(cause: Cause | None, group: Sequence[Question], refutations: Mapping[str, str]) -> Finding:
    question = group[0]
    findings = list(question.findings)
    first = next((finding for finding in findings if finding.kind != "nondeterminism"), findings[0])
    kinds = [finding.kind for finding in findings]
    kind = "nondeterminism" if "nondeterminism" in kinds else first.kind
    names = list(dict.fromkeys(finding.where for finding in findings))
    where = names[0]
    message = f"{_sentence(cause, question, first, refutations)}. {_evidence(names, first)}"
    follows = tuple(describe(finding) for each in group for finding in each.findings)
    if cause is None and question.refused:
        follows = (question.refused, *follows)
    return replace(
        first,
        kind=kind,
        where=where,
        message=message,
        next_step=cause.next_step if cause is not None else "",
        mode=", ".join(each.mode for each in group),
        severity=cause.severity if cause is not None else first.severity,
        follows=(*cause.evidence, *follows) if cause is not None else follows,
        cause=cause.rule if cause is not None else "",
    )


def _sentence(cause: Cause | None, question: Question, first: Finding, refutations: Mapping[str, str]) -> str:
    function = place_of_function(question.parallel.fn)
    names = (finding.where for finding in question.findings)
    shown = next((f"{name}: {refutations[name]}" for name in names if name in refutations), "")
    if cause is not None:
        known = str(cause if cause.place or not function else replace(cause, place=function))
        return first_upper(f"{shown}; {known}" if shown and cause.only_where else known)
    if shown:
        return first_upper(shown)
    if question.unsteady and not question.seen.random:
        return (
            "Two runs of the program on the same inputs differ, but no random op ran: the program has state that was "
            "not restored between the runs, or threads race"
        )
    name = first_upper(first.where)
    where = (place_of(question, question.wrong[0]) if question.wrong else None) or function
    unknown = f"{name} differs, and no known cause gives these numbers; where the difference begins was not traced"
    return f"{unknown}{f' ({where})' if where else ''}"


def _evidence(names: Sequence[str], first: Finding) -> str:
    rest = len(names) - 1
    subject = first_upper(names[0])
    if rest == 1:
        subject = f"{first_upper(listed(names))} differ. {subject}"
    elif rest > 1:
        subject = f"{subject}, and {rest} more results, differ. {subject}"
    return f"{subject}: {first.message}"


def merged(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, with those that two modes share made one."""
    kept: dict[tuple[str | None, ...], Finding] = {}
    for finding in findings:
        key: tuple[str | None, ...] = (finding.kind, finding.device, finding.expected, finding.found, finding.message)
        if finding.kind in ("structure", "error", "dtype"):
            key = (finding.kind, finding.where)
        elif finding.kind in PLACE_KINDS:
            # A graph and eager code do not always know the same lines.
            key = (finding.kind, _LINES.sub("", finding.message))
        before = kept.get(key)
        if before is None or finding.mode in before.mode.split(", "):
            kept[(*key, str(len(kept))) if before is not None else key] = finding
            continue
        kept[key] = replace(
            before,
            mode=f"{before.mode}, {finding.mode}",
            follows=(*(before.follows or (describe(before),)), describe(finding)),
            wanted=tuple(sorted({*before.wanted, *finding.wanted})),
        )
    return list(kept.values())
