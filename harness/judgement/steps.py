"""Tells a step, which updates the variables itself, from a model, whose gradients somebody else takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from harness.evidence.trace import Trace
from harness.judgement.runs import Result, differentiable, same_bits
from harness.judgement.tolerance import epsilon_of


def is_step(
    evidence: Trace,
    found: Result,
    variables: Sequence[Any],
    after: Mapping[int, NDArray[Any]],
    starts: Mapping[int, NDArray[Any]],
    rows: int | None,
) -> bool:
    """Whether a program takes gradients, or has changed all of ``variables`` and returns nothing for each of the rows.

    Derivatives of the updates of such a step, as of expectation maximisation or of Newton's method, are no part of it.
    ``after`` and ``starts`` are values of variables by id.
    """
    if any(op.role == "gradient" for op in evidence.ops):
        return True
    trained = [each for each in variables if differentiable(each) and getattr(each, "trainable", True)]
    known = all(id(each) in after and id(each) in starts for each in trained)
    if not trained or not known or any(same_bits(after[id(each)], starts[id(each)]) for each in trained):
        return False
    floating = [array for array in found.outputs if array is not None and epsilon_of(array.dtype)]
    return not any(array.ndim and array.shape[0] == rows for array in floating)


def trained(variables: Sequence[Any], values: Sequence[Any], named: int) -> list[Any]:
    """The values of what is trained among the first ``named`` variables; ``None`` for others.

    An optimizer's own variables, which nobody names, are on scales of their own.
    """
    pairs = enumerate(zip(variables, values, strict=True))
    return [
        value if index < named and getattr(variable, "trainable", True) else None for index, (variable, value) in pairs
    ]
