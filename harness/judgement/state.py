"""Saves and restores the variables and tables that callables may change: every run starts from the same state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from harness.judgement.runs import same_bits, value_of, variable_names
from harness.judgement.slots import device_of
from harness.lazy import tf
from harness.parallel.closure import carried, keras_classes
from harness.parallel.making import is_made_in_place

#: Methods that write to a variable.
ASSIGNING = ("assign", "assign_add", "assign_sub")
#: In the names of the states of random generators: Keras's and TensorFlow's own.
_DRAWING = ("seed_generator", "StateVar")


def variables_of(callables: Sequence[Callable[..., Any]], named: Sequence[Any]) -> list[Any]:
    """Return the named variables, then those that the callables carry, each once."""
    found = list(named)
    for fn in callables:
        for item in carried(fn, lambda item: isinstance(item, (tf.Variable, tf.Module)) or _has_variables(item)):
            found.extend([item] if isinstance(item, tf.Variable) else item.variables)
    return list({id(each): each for each in map(plain, found)}.values())


def distinct(variables: Iterable[Any]) -> list[Any]:
    """Return each of the variables once, also where one is TensorFlow's and another the Keras variable around it."""
    known: dict[int, Any] = {}
    for variable in variables:
        known.setdefault(id(plain(variable)), variable)
    return list(known.values())


def plain(variable: Any) -> Any:
    """The variable of TensorFlow's that a Keras variable keeps its value in; any other one as it is."""
    held = variable if isinstance(variable, tf.Variable) else getattr(variable, "value", None)
    return held if isinstance(held, tf.Variable) else variable


def named_variables(named: Sequence[Any], state: Sequence[Any]) -> list[tuple[Any, str]]:
    """The variables of ``state`` that can be compared, ``named`` first, each with its name: Keras's of those."""
    others = list(filter(is_comparable, state[len(named) :]))
    return list(zip([*state[: len(named)], *others], variable_names(named, others), strict=True))


def is_comparable(variable: Any) -> bool:
    """Whether a program that shares out a batch leaves the same value: not in a generator's state, nor in a replica.

    The replicas of a strategy's variable may hold shares of its value.
    """
    return whole_of(variable) is None and not any(name in variable.name for name in _DRAWING)


def whole_of(variable: Any) -> Any:
    """The strategy's variable that this one is in a replica of; ``None`` for others."""
    # Of its own attributes alone: the strategy's variable passes others on to a replica.
    whole = getattr(vars(variable).get("_handle"), "_distributed_container", None)
    return whole and whole()


def assigning_class() -> Any:
    """The class of TensorFlow's whose methods ``assign``, ``assign_add`` and ``assign_sub`` write to variables."""
    return _assigning_class(type(tf.distribute.get_strategy()).__qualname__)


@functools.cache
def _assigning_class(_: str) -> Any:
    """The same for the variables that are made within a strategy of the class of this name."""
    return next(kind for kind in type(tf.Variable(0.0)).__mro__ if "assign_sub" in vars(kind))


def _has_variables(item: Any) -> bool:
    return isinstance(item, keras_classes("layers.Layer", "optimizers.Optimizer", "metrics.Metric"))


def put(variable: Any, value: Any) -> None:
    """Assign, and wait until a variable in another process has the value.

    TensorFlow sends eager ops to another process without waiting, and functions over another channel: a function could
    arrive first and use the old value. A read arrives after the assignment, over the same channel.
    """
    variable.assign(value)
    home = device_of(variable)
    if home is not None and not home.in_this_process:
        variable.numpy()


@dataclass
class Snapshot:
    """Saved values of variables, and the keys and values of hash tables."""

    variables: list[Any]
    values: list[Any] = field(default_factory=list)
    tables: list[tuple[Any, NDArray[Any], NDArray[Any]]] = field(default_factory=list)

    @classmethod
    def of(cls, variables: list[Any]) -> Snapshot:
        """Save the current values."""
        return cls(variables, [value_of(variable) for variable in variables])

    def restore(self, leave: Callable[[Any], bool] = lambda _: False) -> None:
        """Restore the values that have changed, but of those variables that ``leave`` is true of; and all tables."""
        for variable, value in zip(self.variables, self.values, strict=True):
            if not leave(variable) and not same_bits(value_of(variable), value):
                put(variable, value)
        for table, keys, values in self.tables:
            # Copies: a dense table goes on writing to the arrays that it is given.
            copies = {"keys": keys.copy(), "values": values.copy()}
            tf.raw_ops.LookupTableImportV2(table_handle=table.resource_handle, **copies)

    @property
    def starts(self) -> dict[int, Any]:
        """The values by the variables' ids."""
        return {id(variable): value for variable, value in zip(self.variables, self.values, strict=True)}


@contextmanager
def variables_made() -> Iterator[list[Any]]:
    """Collect the variables created in the body, except those that a pattern creates on a chosen device."""
    made: list[Any] = []

    def creator(make: Callable[..., Any], **arguments: Any) -> Any:
        variable = make(**arguments)
        if not is_made_in_place():
            made.append(variable)
        return variable

    with tf.variable_creator_scope(creator):
        yield made
