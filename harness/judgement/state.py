"""Saves and restores the variables that callables may change, so that every run starts from the same state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from harness.judgement.slots import device_of
from harness.parallel.closure import carried
from harness.parallel.making import is_made_in_place


def variables_of(callables: Sequence[Callable[..., Any]], named: Sequence[Any]) -> list[Any]:
    """Return the named variables, then those that the callables carry, each once."""
    import tensorflow as tf

    found = list(named)
    for fn in callables:
        for item in carried(fn, lambda item: isinstance(item, (tf.Variable, tf.Module)) or _has_variables(item)):
            found.extend([item] if isinstance(item, tf.Variable) else item.variables)
    known: dict[int, Any] = {}
    for variable in found:
        plain = getattr(variable, "value", None) if not isinstance(variable, tf.Variable) else variable
        plain = plain if isinstance(plain, tf.Variable) else variable
        known.setdefault(id(plain), plain)
    return list(known.values())


def watched(parallel: Callable[..., Any], reference: Callable[..., Any], state: Sequence[Any], named: int) -> list[Any]:
    """Return the variables of ``state`` to compare: the first ``named``, and those that both callables carry.

    A variable that only one of them carries is its own business. The state of a random generator advances with the
    numbers drawn, which is not a fault.
    """
    of_one, of_other = ({id(variable) for variable in variables_of([fn], ())} for fn in (parallel, reference))
    return [
        variable
        for index, variable in enumerate(state)
        if index < named
        or (id(variable) in of_one & of_other and (variable.dtype.is_floating or not variable.shape.rank))
    ]


def _has_variables(item: Any) -> bool:
    import tensorflow as tf

    return isinstance(item, (tf.keras.layers.Layer, tf.keras.optimizers.Optimizer, tf.keras.metrics.Metric))


def put(variable: Any, value: Any) -> None:
    """Assign, and wait until a variable in another process has the value.

    TensorFlow sends eager ops to another process without waiting, and functions over another channel: a function could
    arrive first and use the old value. A read arrives after the assignment, over the same channel.
    """
    variable.assign(value)
    home = device_of(variable)
    if home is not None and home.job not in (None, "localhost"):
        variable.numpy()


@dataclass
class Snapshot:
    """Saved values of variables."""

    variables: list[Any]
    values: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, variables: list[Any]) -> Snapshot:
        """Save the current values."""
        return cls(variables, [variable.numpy() for variable in variables])

    def restore(self) -> None:
        """Restore the values that have changed."""
        for variable, value in zip(self.variables, self.values, strict=True):
            now = variable.numpy()
            if now.shape != value.shape or now.tobytes() != value.tobytes():
                put(variable, value)


@contextmanager
def variables_made() -> Iterator[list[Any]]:
    """Collect the variables created in the body, except those that a pattern creates on a chosen device."""
    import tensorflow as tf

    made: list[Any] = []

    def creator(make: Callable[..., Any], **arguments: Any) -> Any:
        variable = make(**arguments)
        if not is_made_in_place():
            made.append(variable)
        return variable

    with tf.variable_creator_scope(creator):
        yield made
