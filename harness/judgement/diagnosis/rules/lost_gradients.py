"""Gradients do not flow as in the reference: some are None, or a custom gradient ignores its upstream gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from harness.judgement.diagnosis.leaves import handle_of
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import listed
from harness.judgement.runs import Program, as_result


def _claims(question: Question) -> Iterator[Cause]:
    wrong = question.wrong if question.only_gradients else []
    if lost := [leaf for leaf in wrong if leaf.found is None]:
        yield _missing(question, lost)
    elif wrong and all(np.any(leaf.found) for leaf in wrong):  # zeros are stopped gradients
        yield from _ignored_upstream(question)


def _missing(question: Question, lost: Sequence[Leaf]) -> Cause:
    """Gradients that are None: a variable is not read, or its gradient is stopped on the way."""
    names = [leaf.name.removeprefix("gradient for ") for leaf in lost]
    count = len(question.parallel.source_names()) - len(question.parallel.variables)
    unread = [
        leaf.index >= count and handle_of(question.parallel.variables[leaf.index - count]) not in question.seen.read
        for leaf in lost
    ]
    seen, reference = question.seen, question.seen_reference
    what = f"the gradient for {names[0]} is" if len(names) == 1 else f"the gradients for {listed(names)} are"
    if len(seen.stopped) > len(reference.stopped):
        return Cause(f"{what} stopped by tf.stop_gradient", seen.stopped[-1])
    if all(unread):
        get, them = ("gets", "it") if len(names) == 1 else ("get", "them")
        return Cause(
            f"{listed(names)} {get} no gradient: the program never reads {them}, only a copy that was made outside of "
            "the tape",
            next_step="read the variable inside the program, in each shard's scope",
        )
    if len(seen.host_calls) > len(reference.host_calls):
        return Cause(f"{what} lost in a Python callback, which has no gradient", seen.host_calls[-1])
    return Cause(
        f"{what} lost: the results are computed outside of the tape, or through something that has no gradient, such "
        "as .numpy(), a cast to an integer or a variable's assign()"
    )


def _ignored_upstream(question: Question) -> Iterator[Cause]:
    """Gradients that stay the same where the outputs are projected otherwise, and the reference's change."""
    wrong = question.wrong
    other = _gradients(question.parallel, question)
    wanted = _gradients(question.reference, question)
    same = [np.array_equal(leaf.found, other[leaf.index]) for leaf in wrong]  # type: ignore[arg-type]
    steady = [np.array_equal(leaf.expected, wanted[leaf.index]) for leaf in wrong]  # type: ignore[arg-type]
    if all(same) and not any(steady):
        names = [leaf.name for leaf in wrong]
        yield Cause(
            f"{listed(names)} {'does' if len(names) == 1 else 'do'} not depend on what the program does with the "
            "result of a custom gradient: the custom gradient ignores its upstream gradient",
            next_step="multiply the custom gradient by the upstream gradient, the argument of the backward function",
        )


def _gradients(program: Program, question: Question) -> Sequence[Array | None]:
    """The gradients of another projection of the outputs."""
    other = Program(program.fn, program.inputs, program.variables, True, program.seed + 1, scope=program.scope)
    with question.from_start():
        return as_result(other.step(*other.leaves())).gradients


RULE = Rule("C301", "lost-gradients", "gradients that are lost, or ignore what follows", _claims)
