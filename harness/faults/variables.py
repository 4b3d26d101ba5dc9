"""Wrong device: variables made by the first call (P09), and lookups that run at their variable (P11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds, planted
from harness.faults.samples import in_shards, integers, on_each, sample, uneven
from harness.lazy import tf

FAULTS: list[Fault[Case]] = []


class _Lazy:
    def __init__(self) -> None:
        self.weights: Any = None

    def __call__(self, x: Any) -> Any:
        if self.weights is None:
            self.weights = tf.Variable(tf.ones([3, 5]), name="weights")
        return tf.matmul(x, self.weights)


def _ones(x: Any) -> Any:
    return tf.matmul(x, tf.ones([3, 5]))


def _lazy(devices: Devices, lazy: Any, built: Any, mode: str) -> Case:
    """Planted for one mode: after the first call, the variable exists."""
    inputs = {"x": sample(uneven(len(devices)), 3)}
    return Case(
        in_shards(devices.names, lazy),
        in_shards(devices.names, built),
        _ones,
        inputs,
        kinds("variable-placement"),
        modes=(mode,),
    )


@planted(
    FAULTS,
    "P09-first-call",
    "a variable made by the first call",
    "public code",
    "variable is created on the device of the first call.*variable ",
)
def _made_by_first_call(devices: Devices) -> Case:
    built = _Lazy()
    built(sample(1, 3))
    return _lazy(devices, _Lazy(), built, "eager")


@planted(
    FAULTS,
    "P09-first-trace",
    "a variable made while a graph is built",
    "public code",
    "variable is created on the device of the first call.*variable ",
)
def _made_by_first_trace(devices: Devices) -> Case:
    built = _Lazy()
    built(sample(1, 3))
    return _lazy(devices, _Lazy(), built, "graph")


@planted(
    FAULTS,
    "P09-unbuilt-layer",
    "a Keras layer that is not built",
    "public code",
    "variable is created on the device of the first call.*variable ",
)
def _unbuilt_layer(devices: Devices) -> Case:
    lazy, built = (tf.keras.layers.Dense(5, kernel_initializer="ones") for _ in range(2))
    built.build((None, 3))
    return _lazy(devices, lazy, built, "eager")


def _lookup(devices: Devices, look_up: Callable[[Any, Any], Any], device: str) -> Case:
    """Rows of a table on ``device``, then a dense layer. The twin reads the table in each scope."""
    with tf.device(device):
        table = tf.Variable(sample(20, 4))
    weights = tf.Variable(sample(4, 2, seed=1))

    def faulty(x: Any) -> Any:
        return tf.tanh(tf.matmul(look_up(table, x), weights))

    def right(x: Any) -> Any:
        return tf.tanh(tf.matmul(tf.gather(tf.convert_to_tensor(table), x), weights))

    return Case(
        in_shards(devices.names, faulty),
        in_shards(devices.names, right),
        right,
        {"x": integers(20, uneven(len(devices)))},
        kinds("op-placement"),
    )


@planted(
    FAULTS,
    "P11-embedding-lookup",
    "embedding_lookup runs on the device of its table",
    "tensorflow 30537",
    "TensorFlow runs a lookup on its variable's device.*ResourceGather",
)
def _embedding_lookup(devices: Devices) -> Case:
    """``embedding_lookup`` opens the scope of its table, which is not the tower's."""
    return _lookup(devices, tf.nn.embedding_lookup, devices[0].name)


@planted(
    FAULTS,
    "P11-gather",
    "a gather runs on the device of its variable",
    "tensorflow 30537",
    "TensorFlow runs a lookup on its variable's device.*ResourceGather",
)
def _gather(devices: Devices) -> Case:
    return _lookup(devices, tf.gather, devices[0].name)


@planted(
    FAULTS,
    "P11-table-on-the-last",
    "the table is on the last device",
    "tensorflow 30537",
    "TensorFlow runs a lookup on its variable's device.*ResourceGather",
)
def _table_on_the_last(devices: Devices) -> Case:
    return _lookup(devices, tf.nn.embedding_lookup, devices[-1].name)


@planted(
    FAULTS,
    "P11-lookups-alone",
    "all lookups on one device",
    "tensorflow 30537",
    "TensorFlow runs a lookup on its variable's device.*ResourceGather",
)
def _copy_for_each(devices: Devices) -> Case:
    """Only lookups. In the twin each device has a copy of the table."""
    table = tf.Variable(sample(20, 4))
    copies = on_each(devices.names, lambda: tf.Variable(table))
    count = len(devices)

    def parallel(x: Any) -> Any:
        parts = tf.split(x, count)
        return tf.concat(on_each(devices.names, lambda part: tf.nn.embedding_lookup(table, part), parts), axis=0)

    def twin(x: Any) -> Any:
        parts = tf.split(x, count)
        return tf.concat(on_each(devices.names, tf.nn.embedding_lookup, copies, parts), axis=0)

    def reference(x: Any) -> Any:
        return tf.gather(table, x)

    return Case(parallel, twin, reference, {"x": integers(20, 2 * count, 3)}, kinds("op-placement"))
