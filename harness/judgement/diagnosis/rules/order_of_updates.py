"""The variables are those of the reference's updates in another order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from harness.judgement.diagnosis.leaves import explains, handle_of, place_of, variables_text
from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.writing import applying, writes
from harness.judgement.runs import Result

#: So many other variables are tried, each by itself.
_MOST = 8


def _claims(question: Question) -> Iterator[Cause]:
    states = [leaf for leaf in question.wrong if leaf.part == "state"]
    if not states:
        return
    handles = [handle_of(question.watched[leaf.index]) for leaf in states]
    as_often = all(question.seen.writes[each] == question.seen_reference.writes[each] for each in handles)
    if len(states) == len(question.wrong) and as_often:
        yield from _with_other_values(question, states)
    if max(question.seen_reference.writes.values(), default=0) > 1:
        yield from _stale(question, states)


def _with_other_values(question: Question, states: Sequence[Leaf]) -> Iterator[Cause]:
    """The reference with another variable kept at its value from before, or set to that from after its update."""
    others = [
        leaf
        for leaf in question.leaves
        if leaf.part == "state"
        and not leaf.wrong
        and leaf.start is not None
        and leaf.expected is not None
        and not np.array_equal(leaf.start, leaf.expected)
    ]
    for kept in [*([leaf] for leaf in others[:_MOST]), *([others] if len(others) > 1 else [])]:
        for when, instead in (("before", "after"), ("after", "before")):
            if explains(_keeping(question, kept, updated=when == "after"), states):
                values, has, are = ("value", "has", "is") if len(kept) == 1 else ("values", "have", "are")
                names = variables_text(kept)
                yield Cause(
                    f"the update of {variables_text(states)} reads the {values} that {names} {has} {when} "
                    f"{names} {are} updated; the reference reads the {values} {instead} that",
                    place_of(question, states[0]),
                    next_step="make the updates in the reference's order",
                )
                return


def _keeping(question: Question, kept: Sequence[Leaf], *, updated: bool) -> Result | None:
    """The reference where nothing is written to these variables, which have their last values if ``updated``."""
    variables = [question.watched[leaf.index] for leaf in kept]
    known = {id(variable) for variable in variables}

    def write(variable: Any, value: Any, perform: Callable[[Any], Any]) -> Any:
        return variable if id(variable) in known else perform(value)

    def program(**inputs: Any) -> Any:
        for variable, leaf in zip(variables, kept, strict=True):
            if updated:
                variable.assign(leaf.expected)
        with writes(write):
            return question.reference.fn(**inputs)

    return question.run(program, gradients=False)


def _stale(question: Question, states: Sequence[Leaf]) -> Iterator[Cause]:
    """Several updates, none of which changes what the others are computed from."""
    for optimizers in (True, False):
        result, updates = _postponed(question, optimizers)
        if updates > 1 and explains(result, question.wrong):
            yield Cause(
                f"the gradients are stale: the {updates} updates of {variables_text(states)} use gradients from before "
                "the first update",
                place_of(question, states[0]),
                next_step="compute the gradients of each update after the previous update",
            )
            return


def _postponed(question: Question, optimizers: bool) -> tuple[Result | None, int]:
    """The reference whose optimizers, or whose writes to variables, act at its end, and how often they act."""
    pending: list[Callable[[], Any]] = []

    def apply(original: Callable[..., Any], optimizer: Any, grads: Any, variables: Any = None) -> None:
        pending.append(partial(original, optimizer, list(grads), variables))

    def write(variable: Any, value: Any, perform: Callable[[Any], Any]) -> Any:
        pending.append(partial(perform, value))
        return variable

    def program(**inputs: Any) -> Any:
        with applying(apply) if optimizers else writes(write):
            results = question.reference.fn(**inputs)
        for each in pending:
            each()
        return results

    result = question.run(program, gradients=False)
    return result, len(pending) if optimizers else max(question.seen_reference.writes.values())


RULE = Rule("C211", "order-of-updates", "updates in another order", _claims)
