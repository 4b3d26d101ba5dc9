"""Bounds of the values and gradients of an exact program: none may exceed the range of exact integers."""

from __future__ import annotations

from collections.abc import Sequence

from harness.strategies.dtypes import is_float
from harness.strategies.steps.step import Step, Types

#: The largest integer weight of an output in a projection whose gradients are still exact.
PROJECTION_LIMIT = 2


def gradient_bounds(types: Types, steps: Sequence[Step], outputs: Sequence[str], rows: int) -> dict[str, float]:
    """Return the largest magnitude of the gradient of each value, for integer weights up to :data:`PROJECTION_LIMIT`.

    ``outputs`` are the names of the outputs; step ``i`` makes the value ``v<i>``. Magnitudes are added up, so that the
    bound holds for every partial sum in any order.

    Raises:
        InvalidProgram: a step is not exact.
    """
    bounds = dict.fromkeys(types, 0.0)
    for name in outputs:
        bounds[name] += PROJECTION_LIMIT if is_float(types[name].dtype) else 0
    for index in range(len(steps) - 1, -1, -1):
        step = steps[index]
        edges = step.edges(types)
        if edges is None:
            step.fault("its arithmetic is not that of integers", "steps that are exact, or exact=False")
        for edge in edges:
            repeats = 1 if types[edge.name].batched else max(rows, 1)
            bounds[edge.name] += edge.fan * edge.gain * bounds[f"v{index}"] * repeats
    return bounds


def largest(types: Types, steps: Sequence[Step], outputs: Sequence[str], rows: int) -> float:
    """Return the largest magnitude of any value or gradient of a program with integer arithmetic.

    Raises:
        InvalidProgram: a step is not exact.
    """
    gradients = gradient_bounds(types, steps, outputs, rows)
    return max(*(value.bound for value in types.values()), *gradients.values())
