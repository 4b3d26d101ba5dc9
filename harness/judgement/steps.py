"""Tells a step, which updates the variables itself, from a model, whose gradients somebody else takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.evidence.trace import Trace
from harness.judgement.runs import Result, differentiable, same_bits
from harness.judgement.tolerance import epsilon_of
from harness.judgement.values import wide


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
    trained = list(filter(_is_trained, variables))
    known = all(id(each) in after and id(each) in starts for each in trained)
    if not trained or not known or any(same_bits(after[id(each)], starts[id(each)]) for each in trained):
        return False
    floating = [array for array in found.outputs if array is not None and epsilon_of(array.dtype)]
    return not any(array.ndim and array.shape[0] == rows for array in floating)


def changes(variables: Sequence[Any], before: Sequence[Any], after: Sequence[Any]) -> Iterator[NDArray[Any]]:
    """How much each of ``variables`` that is trained has changed, where it has kept its shape."""
    for variable, start, end in zip(variables, before, after, strict=True):
        if _is_trained(variable) and start.shape == end.shape:
            with np.errstate(invalid="ignore", over="ignore"):
                change = wide(end) - wide(start)
            yield change


def _is_trained(variable: Any) -> bool:
    return differentiable(variable) and getattr(variable, "trainable", True)
