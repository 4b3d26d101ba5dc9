"""The results are the reference's with a variable that the program never reads set to 0, or to 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from harness.judgement.diagnosis.leaves import explains, handle_of, place_of
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.state import named_variables


def _claims(question: Question) -> Iterator[Cause]:
    read = question.seen_reference.read - question.seen.read
    for variable, name in named_variables(question.reference.variables, question.snapshot.variables):
        if handle_of(variable) not in read:
            continue
        for value in (0, 1):
            rest = [leaf for leaf in question.wrong if leaf.part == "outputs"]
            if explains(question.run(_with(variable, value, question.reference.fn), gradients=False), rest):
                sentence = f"{rest[0].name} has the value that it would have if the variable were {value}"
                yield Cause(f"{name} is never read: {sentence}", place_of(question, rest[0]))
                return


def _with(variable: Any, value: int, fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` where all elements of a variable are ``value``."""

    def program(**inputs: Any) -> Any:
        variable.assign(np.full(variable.shape, value, variable.dtype.as_numpy_dtype))
        return fn(**inputs)

    return program


RULE = Rule("C406", "unread-variable", "a variable that is not read", _claims)
