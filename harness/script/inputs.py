"""The arguments of a step, and the step as a program over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

from harness.errors import UsageError
from harness.lazy import tf
from harness.script.capture import StepCall, parameters


def inputs_of(step: StepCall) -> dict[str, Any]:
    """The arguments of a step that have tensors or arrays in them, by the names of its parameters.

    Raises:
        UsageError: an argument is an iterator, which no two runs can start from.
    """
    found = {}
    for name, value in parameters(step.fn, step.args, step.kwargs).arguments.items():
        if isinstance(value, Iterator):
            raise UsageError(
                f"{step.name}: the argument {name} is an iterator ({type(value).__name__}), which gives each run "
                "another batch; pass the batch itself to the step: step(next(iterator))"
            )
        if any(tf.is_tensor(leaf) or isinstance(leaf, np.ndarray) for leaf in tf.nest.flatten(value)):
            found[name] = value
    return found


def program_of(step: StepCall, fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` over the inputs of the step; its other arguments, such as a model, are those of the call."""
    rest = step.args, step.kwargs

    def program(**inputs: Any) -> Any:
        bound = parameters(step.fn, *rest)
        bound.arguments.update(inputs)
        with nullcontext() if step.default is None else tf.device(step.default):
            return fn(*bound.args, **bound.kwargs)

    program.fn = fn  # type: ignore[attr-defined]
    return program
