"""How large the values and gradients of an exact program can become: none may leave the range of exact integers."""

from __future__ import annotations

from collections.abc import Sequence

from harness.strategies.dtypes import is_float
from harness.strategies.steps.step import Step, Types

#: Largest weight of an output in the projection whose gradients are exact. Integer weights up to it keep the promise.
PROJECTION_LIMIT = 2


def gradient_bounds(types: Types, steps: Sequence[Step], outputs: Sequence[str], rows: int) -> dict[str, float]:
    """The largest magnitude of the gradient of each value, for integer weights up to :data:`PROJECTION_LIMIT`.

    ``outputs`` are the names of the outputs; step ``i`` makes the value ``v<i>``. The sum of magnitudes is taken
    everywhere, so that the bound holds for every partial sum in every order.

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
    """The largest magnitude of any value or gradient of a program whose arithmetic is that of integers.

    Raises:
        InvalidProgram: a step is not exact.
    """
    gradients = gradient_bounds(types, steps, outputs, rows)
    return max(*(value.bound for value in types.values()), *gradients.values())
