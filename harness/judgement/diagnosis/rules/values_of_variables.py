"""What differs is computed from other values of variables: from before or after an update, or never read at all."""

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
from harness.judgement.state import named_variables

#: So many other variables are tried, each by itself.
_MOST = 8


def _claims(question: Question) -> Iterator[Cause]:
    wrong, states = question.wrong, question.wrong_states
    outputs = [leaf for leaf in wrong if leaf.part == "outputs"]
    if outputs and len(outputs) == len(wrong):
        yield from _read_at_another_time(question)
    yield from _never_read(question, outputs)
    if not states:
        return
    handles = [handle_of(question.watched[leaf.index]) for leaf in states]
    as_often = all(question.seen.writes[each] == question.seen_reference.writes[each] for each in handles)
    if len(states) == len(wrong) and as_often:
        yield from _updated_at_another_time(question, states)
    if max(question.seen_reference.writes.values(), default=0) > 1:
        yield from _stale(question, states)


def _read_at_another_time(question: Question) -> Iterator[Cause]:
    """Outputs from the values that all variables have before their update, or after it."""
    first = question.wrong[0]
    for when in ("before", "after") if question.seen_reference.writes else ():
        if explains(_keeping(question, None, updated=when == "after"), question.wrong):
            sentence = f"{first.name} is computed with the variables' values from {when} their update"
            yield Cause(sentence, place_of(question, first))
            return


def _never_read(question: Question, outputs: Sequence[Leaf]) -> Iterator[Cause]:
    """Outputs from a variable that is never read, as if it were 0 or 1."""
    read = question.seen_reference.read - question.seen.read if outputs else ()
    for variable, name in named_variables(question.reference.variables, question.snapshot.variables):
        for value in (0, 1) if handle_of(variable) in read else ():
            filled = np.full(variable.shape, value, variable.dtype.as_numpy_dtype)
            if explains(_keeping(question, [(variable, filled)], updated=True), outputs):
                sentence = f"{outputs[0].name} has the value that it would have if the variable were {value}"
                yield Cause(f"{name} is never read: {sentence}", place_of(question, outputs[0]))
                return


def _updated_at_another_time(question: Question, states: Sequence[Leaf]) -> Iterator[Cause]:
    """Updates from the values that others, which are right, have before their update, or after it."""
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
        values = [(question.watched[leaf.index], leaf.expected) for leaf in kept]
        for when, instead in (("before", "after"), ("after", "before")):
            if explains(_keeping(question, values, updated=when == "after"), states):
                value, has, are = ("value", "has", "is") if len(kept) == 1 else ("values", "have", "are")
                names = variables_text(kept)
                yield Cause(
                    f"the update of {variables_text(states)} reads the {value} that {names} {has} {when} "
                    f"{names} {are} updated; the reference reads the {value} {instead} that",
                    place_of(question, states[0]),
                    next_step="make the updates in the reference's order",
                )
                return


def _keeping(question: Question, kept: Sequence[tuple[Any, Any]] | None, *, updated: bool) -> Result | None:
    """The reference where nothing is written to these variables, or to any.

    If ``updated``, they have these values, or all have those that the reference leaves.
    """
    known = None if kept is None else {id(variable) for variable, _ in kept}

    def write(variable: Any, value: Any, perform: Callable[[Any], Any]) -> Any:
        return variable if known is None or id(variable) in known else perform(value)

    def program(**inputs: Any) -> Any:
        if updated and kept is None:
            question.reference.fn(**inputs)
        for variable, value in kept or () if updated else ():
            variable.assign(value)
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


RULE = Rule("C210", "values-of-variables", "values from before or after an update", _claims, by="results")
