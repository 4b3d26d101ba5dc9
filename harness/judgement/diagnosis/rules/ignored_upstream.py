"""A custom gradient does not depend on the gradient of what follows, its upstream gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from harness.judgement.diagnosis.question import Array, Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import listed
from harness.judgement.runs import Program, as_result


def _claims(question: Question) -> Iterator[Cause]:
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


RULE = Rule("C302", "ignored-upstream", "a custom gradient that ignores its upstream gradient", _claims)
