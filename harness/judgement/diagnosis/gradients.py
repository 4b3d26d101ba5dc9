"""Gradients that are missing: the variable is not read, or its gradient is stopped on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from harness.judgement.diagnosis.leaves import handle_of
from harness.judgement.diagnosis.question import Array, Cause, Question
from harness.judgement.diagnosis.wording import listed
from harness.judgement.runs import Program, as_result


def missing(question: Question) -> Iterator[Cause]:
    """Some gradients are None, and nothing else differs but other gradients."""
    lost = [leaf for leaf in question.wrong if leaf.part == "gradients" and leaf.found is None]
    if not lost or any(leaf.part != "gradients" for leaf in question.wrong):
        return
    names = [leaf.name.removeprefix("gradient for ") for leaf in lost]
    count = len(question.parallel.source_names()) - len(question.parallel.variables)
    unread = [
        leaf.name.removeprefix("gradient for ")
        for leaf in lost
        if leaf.index >= count and handle_of(question.parallel.variables[leaf.index - count]) not in question.seen.read
    ]
    seen, reference = question.seen, question.seen_reference
    stops = len(seen.stopped) > len(reference.stopped)
    if unread and len(unread) == len(lost) and not stops:
        yield Cause(
            f"{listed(unread)} {'gets' if len(unread) == 1 else 'get'} no gradient: the program never reads "
            f"{'it' if len(unread) == 1 else 'them'}, only a copy that was made outside of the tape",
            next_step="read the variable inside the program, in each shard's scope",
        )
        return
    what = f"the gradient for {names[0]} is" if len(names) == 1 else f"the gradients for {listed(names)} are"
    if stops:
        yield Cause(f"{what} stopped by tf.stop_gradient", seen.stopped[-1])
    elif len(seen.host_calls) > len(reference.host_calls):
        yield Cause(f"{what} lost in a Python callback, which has no gradient", seen.host_calls[-1])
    else:
        yield Cause(
            f"{what} lost: the results are computed outside of the tape, or through something that has no gradient, "
            "such as .numpy(), a cast to an integer or a variable's assign()"
        )


def ignored(question: Question) -> Iterator[Cause]:
    """Gradients that stay the same whatever the gradient of what follows is."""
    wrong = question.wrong
    if any(leaf.part != "gradients" or leaf.found is None or not np.any(leaf.found) for leaf in wrong):
        return  # zeros are stopped gradients
    other = _gradients(question.parallel, question)
    wanted = _gradients(question.reference, question)
    same = [np.array_equal(leaf.found, other[leaf.index]) for leaf in wrong]  # type: ignore[arg-type]
    steady = [np.array_equal(leaf.expected, wanted[leaf.index]) for leaf in wrong]  # type: ignore[arg-type]
    if wrong and all(same) and not any(steady):
        names = [leaf.name for leaf in wrong]
        yield Cause(
            f"{listed(names)} {'does' if len(names) == 1 else 'do'} not depend on what the program does with the "
            "result of a custom gradient: the custom gradient ignores its upstream gradient",
            next_step="multiply the custom gradient by the upstream gradient, the argument of the backward function",
        )


def _gradients(program: Program, question: Question) -> Sequence[Array | None]:
    """The gradients of another projection of the outputs."""
    other = Program(program.fn, program.inputs, program.variables, True, program.seed + 1, scope=program.scope)
    question.snapshot.restore()
    try:
        return as_result(other.step(*other.leaves())).gradients
    finally:
        question.snapshot.restore()
