"""Wrong device: variables made by the first call (P09), and lookups that run at their variable (P11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds
from harness.faults.samples import in_shards, integers, on_each, sample, uneven
from harness.lazy import tf


class _Lazy:
    def __init__(self) -> None:
        self.weights: Any = None

    def __call__(self, x: Any) -> Any:
        if self.weights is None:
            self.weights = tf.Variable(tf.ones([3, 5]), name="weights")
        return tf.matmul(x, self.weights)


def _keras_layer() -> Any:
    return tf.keras.layers.Dense(5, kernel_initializer="ones")


def _ones(x: Any) -> Any:
    return tf.matmul(x, tf.ones([3, 5]))


def _lazy(make: Callable[[], Any], mode: str) -> Callable[[Devices], Case]:
    """A model that makes its variable in the first call, planted for one mode: after that call, the variable exists."""

    def plant(devices: Devices) -> Case:
        lazy, built = make(), make()
        built(sample(1, 3))
        return Case(
            in_shards(devices.names, lazy),
            in_shards(devices.names, built),
            _ones,
            {"x": sample(uneven(len(devices)), 3)},
            kinds("variable-placement"),
            modes=(mode,),
        )

    return plant


def _embedding(table: Any, x: Any) -> Any:
    """``embedding_lookup`` opens the scope of its table, which is not the tower's."""
    return tf.nn.embedding_lookup(table, x)


def _gather(table: Any, x: Any) -> Any:
    return tf.gather(table, x)


def _lookup(look_up: Callable[[Any, Any], Any], place: int) -> Callable[[Devices], Case]:
    """Rows of a table on device ``place``, then a dense layer. The twin reads the table in each scope."""

    def plant(devices: Devices) -> Case:
        with tf.device(devices[place].name):
            table = tf.Variable(sample(20, 4))
        weights = tf.Variable(sample(4, 2, seed=1))

        def faulty(x: Any) -> Any:
            return tf.tanh(tf.matmul(look_up(table, x), weights))

        def right(x: Any) -> Any:
            return tf.tanh(tf.matmul(_gather(tf.convert_to_tensor(table), x), weights))

        inputs = {"x": integers(20, uneven(len(devices)))}
        names = devices.names
        return Case(in_shards(names, faulty), in_shards(names, right), right, inputs, kinds("op-placement"))

    return plant


def _lookups_alone(devices: Devices) -> Case:
    """Only lookups. In the twin each device has a copy of the table."""
    table = tf.Variable(sample(20, 4))
    count = len(devices)

    def on_all(x: Any, tables: list[Any]) -> Any:
        return tf.concat(on_each(devices.names, _embedding, tables, tf.split(x, count)), axis=0)

    copies = on_each(devices.names, lambda: tf.Variable(table))
    return Case(
        lambda x: on_all(x, [table] * count),
        lambda x: on_all(x, copies),
        lambda x: _gather(table, x),
        {"x": integers(20, 2 * count, 3)},
        kinds("op-placement"),
    )


_FIRST = "variable is created in the first call of the program, on the device of this call.*variable "
_AT_VARIABLE = "TensorFlow runs a lookup on its variable's device.*ResourceGather"

FAULTS = (
    Fault("P09-first-call", "a variable made by the first call", "public code", _lazy(_Lazy, "eager"), _FIRST),
    Fault("P09-first-trace", "a variable made while a graph is built", "public code", _lazy(_Lazy, "graph"), _FIRST),
    Fault(
        "P09-unbuilt-layer",
        "a Keras layer that is built by its first call",
        "public code",
        _lazy(_keras_layer, "eager"),
        _FIRST,
    ),
    Fault(
        "P11-embedding-lookup",
        "embedding_lookup runs on the device of its table",
        "tensorflow 30537",
        _lookup(_embedding, 0),
        _AT_VARIABLE,
    ),
    Fault(
        "P11-gather",
        "a gather runs on the device of its variable",
        "tensorflow 30537",
        _lookup(_gather, 0),
        _AT_VARIABLE,
    ),
    Fault(
        "P11-table-on-the-last",
        "embedding_lookup in a table on the last device",
        "tensorflow 30537",
        _lookup(_embedding, -1),
        _AT_VARIABLE,
    ),
    Fault("P11-lookups-alone", "all lookups on one device", "tensorflow 30537", _lookups_alone, _AT_VARIABLE),
)
