"""Reads the variables of a model and its optimizer: their values, where they are, and whether replicas agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.distribute.course import Recorder


def named(variables: Sequence[Any]) -> dict[str, Any]:
    """Keras variables by path; where several have one path, by their place too."""
    found: dict[str, Any] = {}
    for index, variable in enumerate(variables):
        path = str(variable.path)
        found[path if path not in found else f"{path} ({index})"] = variable
    return found


def slots_of(optimizer: Any) -> dict[str, Any]:
    """What an optimizer keeps besides its counter and its learning rate, and besides numbers that are no floats."""
    own = {id(optimizer.iterations), id(getattr(optimizer, "_learning_rate", None))}
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        own |= {id(inner.iterations), id(getattr(inner, "_learning_rate", None))}
    kept = [variable for variable in optimizer.variables if id(variable) not in own]
    return {name: variable for name, variable in named(kept).items() if "float" in str(variable.dtype)}


def copies_of(strategy: Any, variable: Any) -> tuple[Any, ...]:
    """The variables of TensorFlow that hold a Keras variable: one for each replica of this process, or one alone."""
    return tuple(strategy.experimental_local_results(variable.value))


def kept_in_sync(variable: Any) -> bool:
    """Whether all replicas must hold the same: not what each adds up for itself until it is read."""
    import tensorflow as tf

    held = variable.value
    return bool(getattr(held, "synchronization", None) != tf.VariableSynchronization.ON_READ)


def read(variable: Any) -> Any:
    """The value of a Keras variable, as outside of all replicas."""
    value = variable.value
    return (value.read_value() if hasattr(value, "read_value") else value).numpy()


def look(recorder: Recorder, strategy: Any, quantity: str, variables: dict[str, Any]) -> None:
    """Record the variables' values, and copies of them that differ."""
    for name, variable in variables.items():
        recorder.add(quantity, name, read(variable))
        copies = copies_of(strategy, variable)
        if len(copies) < 2 or not kept_in_sync(variable):
            continue
        first, *others = [copy.read_value().numpy() for copy in copies]
        for copy, other in zip(copies[1:], others, strict=True):
            if first.tobytes() != other.tobytes():
                wide = np.abs(np.asarray(other, np.float64) - np.asarray(first, np.float64))
                recorder.is_apart(name, str(copy.device), float(np.max(wide, initial=0.0)))


def homes(strategy: Any, variables: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """The devices that hold each variable."""
    return {
        name: tuple(str(copy.device) for copy in copies_of(strategy, variable)) for name, variable in variables.items()
    }
