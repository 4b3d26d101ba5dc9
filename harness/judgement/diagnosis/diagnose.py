"""Tries the rules in turn. The first whose claim gives the numbers is the cause."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.rules import first_difference
from harness.judgement.diagnosis.rules.table import RULES
from harness.judgement.diagnosis.writing import follow

#: For so long, in seconds, rules are tried. A program that takes long is then searched for the first op alone.
_MOST_S = 300.0


def diagnose(question: Question, of: Callable[[Rule], bool] = lambda _: True) -> Cause | None:
    """The cause that the numbers confirm, or ``None``; what was ruled out is then in ``question.ruled_out``.

    ``of``: whether to try a rule; by default all are tried.

    Where a training step updates variables with wrong gradients, they follow: the results are explained without them.
    """
    question.began = time.monotonic()
    found = _first(question, of)
    if found is not None:
        return found
    upstream = [leaf for leaf in question.leaves if leaf.part != "state" or not leaf.wrong]
    if len(upstream) < len(question.leaves) and any(leaf.wrong for leaf in upstream):
        question.leaves, everything = upstream, question.leaves
        try:
            found = _first(question, of)
        finally:
            question.leaves = everything
        if found is not None and follow(question):
            return found
    return None


def _first(question: Question, of: Callable[[Rule], bool]) -> Cause | None:
    question.ruled_out, question.untried = [], []
    for rule in filter(of, RULES):
        if time.monotonic() - question.began > _MOST_S and rule is not first_difference.RULE:
            _note(rule.excluded, question.untried)
            continue
        try:
            cause = next(rule.claims(question), None)
        except Exception as error:  # noqa: BLE001 - that results differ is known, and must not be lost for want of a cause
            question.failed.append(f"{rule.name}: {type(error).__name__}: {error}")
            continue
        finally:
            question.snapshot.restore()
        if cause is not None:
            return replace(cause, rule=cause.rule or rule.code)
        _note(rule.excluded, question.ruled_out)
    return None


def _note(text: str, texts: list[str]) -> None:
    if text not in texts:
        texts.append(text)
