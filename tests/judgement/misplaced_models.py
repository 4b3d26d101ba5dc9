"""Models of several layers with work on another shard's device where ``wrong``; else their clean twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from misplaced_programs import ROWS, towers
from shard_programs import Program, layers

from harness.devices.device import Devices
from harness.faults.samples import integers, sample


def keras_layers(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    first, second = (tf.keras.layers.Dense(6, activation="tanh") for _ in range(2))
    first.build((None, 6))
    second.build((None, 6))

    def work(part: Any, name: str, shard: int) -> Any:
        with tf.device(name):
            hidden = first(part)
        with tf.device(devices[3].name if wrong else name):
            return second(hidden)

    return Program(towers(devices, work), lambda x: second(first(x)), {"x": sample(ROWS, 6)})


def two_inputs(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    first, second, _ = layers()

    def reference(x: Any, y: Any) -> Any:
        return tf.square(second(first(x)) - y)

    def parallel(x: Any, y: Any) -> Any:
        outputs = []
        for device, a, b in zip(devices, tf.split(x, [3, 3, 2, 2]), tf.split(y, [3, 3, 2, 2]), strict=True):
            with tf.device(device.name):
                hidden = first(a)
            with tf.device(devices[2].name if wrong else device.name):
                outputs.append(tf.square(second(hidden) - b))
        return tf.concat(outputs, 0)

    return Program(parallel, reference, {"x": sample(ROWS, 6), "y": sample(ROWS, 6, seed=3)})


def column_parallel(devices: Devices, wrong: bool) -> Program:
    """Each device has some columns of the weights."""
    import tensorflow as tf

    weights = tf.Variable(sample(6, 8))

    def reference(x: Any) -> Any:
        return tf.tanh(tf.matmul(x, weights) ** 2)

    def parallel(x: Any) -> Any:
        outputs = []
        for device, columns in zip(devices, tf.split(weights, 4, axis=1), strict=True):
            with tf.device(device.name):
                hidden = tf.matmul(x, columns)
            with tf.device(devices[0].name if wrong else device.name):
                outputs.append(tf.tanh(hidden**2))
        return tf.concat(outputs, 1)

    return Program(parallel, reference, {"x": sample(ROWS, 6)})


def table_on_one(devices: Devices, wrong: bool) -> Program:
    """A lookup runs at its variable; the twin reads the variable in each scope."""
    import tensorflow as tf

    with tf.device(devices[0].name):
        table = tf.Variable(sample(20, 6))

    def work(part: Any, name: str, shard: int) -> Any:
        with tf.device(name):
            return tf.tanh(tf.gather(table if wrong else table.read_value(), part))

    return Program(towers(devices, work), lambda x: tf.tanh(tf.gather(table, x)), {"x": integers(20, ROWS)})


def checked_on_the_host(devices: Devices, wrong: bool) -> Program:
    """What only an assertion reads may be anywhere; the same work is out of place where its result is used."""
    import tensorflow as tf

    first, second, both = layers()

    def largest(x: Any) -> Any:
        return tf.reduce_max(tf.abs(first(tf.square(x)) - second(x)), axis=1, keepdims=True)

    def work(part: Any, name: str, shard: int) -> Any:
        with tf.device(devices.host):
            found = largest(part)
            tf.debugging.assert_less(found, 1e6)
        with tf.device(name):
            return both(part) + found if wrong else both(part)

    def reference(x: Any) -> Any:
        return both(x) + largest(x) if wrong else both(x)

    # In eager code Python reads the result, and no op shows what for.
    return Program(towers(devices, work), reference, {"x": sample(8, 6)}, modes=("graph",))


def state_handed_on(devices: Devices, wrong: bool) -> Program:
    """Each device goes on with the state of the one before; one step of each stands on the first device."""
    import tensorflow as tf

    rows, states = tf.Variable(sample(6, 6, seed=1)), tf.Variable(sample(6, 6, seed=2) / 4)

    def step(state: Any, x: Any) -> Any:
        return tf.tanh(tf.matmul(x, rows) + tf.matmul(state, states))

    def reference(x: Any) -> Any:
        found = [tf.zeros_like(x[:, 0])]
        for index in range(8):
            found.append(step(found[-1], x[:, index]))
        return tf.stack(found[1:], 1)

    def parallel(x: Any) -> Any:
        state, found = tf.zeros_like(x[:, 0]), []
        for device, part in zip(devices, tf.split(x, 4, axis=1), strict=True):
            for index in range(2):
                with tf.device(devices[0].name if wrong and index else device.name):
                    state = step(state, part[:, index])
                found.append(state)
        return tf.stack(found, 1)

    return Program(parallel, reference, {"x": sample(3, 8, 6)})


def scored_after_the_scope(devices: Devices, wrong: bool) -> Program:
    """What only a metric reads belongs to the metric's variable, and not to the shard."""
    import tensorflow as tf

    first, _, both = layers()
    total = tf.Variable(0.0)

    def counted(hidden: Any) -> Any:
        scores = tf.reduce_sum(first(hidden), 1)
        if wrong:
            return scores
        total.assign_add(tf.reduce_sum(scores))
        return hidden

    def work(part: Any, name: str, shard: int) -> Any:
        with tf.device(name):
            hidden = both(part)
        return counted(hidden)

    return Program(towers(devices, work), lambda x: counted(both(x)), {"x": sample(ROWS, 6)})


def compared_with_all_rows(devices: Devices, wrong: bool) -> Program:
    """Each device compares its rows with those of both. TensorFlow takes the transposition into the product."""
    import tensorflow as tf

    first, _, _ = layers()

    def reference(x: Any) -> Any:
        rows = first(x)
        return tf.matmul(rows, tf.transpose(rows))

    def parallel(x: Any) -> Any:
        parts, found = [], []
        for device, part in zip(devices[:2], tf.split(x, [5, 4]), strict=True):
            with tf.device(device.name):
                parts.append(first(part))
                both = tf.concat(parts, 0) if wrong else None
        if wrong:
            with tf.device(devices.host):
                return tf.matmul(both, tf.transpose(both))
        for device, part in zip(devices[:2], parts, strict=True):
            with tf.device(device.name):
                found.append(tf.matmul(part, tf.transpose(tf.concat(parts, 0))))
        return tf.concat(found, 0)

    return Program(parallel, reference, {"x": sample(9, 6)}, devices=2)


def branches_joined(devices: Devices, wrong: bool) -> Program:
    """Each device joins features of two arguments, those of one by a condition, and in the loop the rows so far too."""
    import tensorflow as tf

    scale, table = tf.Variable(sample(6)), tf.Variable(sample(3, 4))

    def features(x: Any, word: Any) -> Any:
        branch = tf.cond(scale[0] > 0.0, lambda: x * scale, lambda: x + scale)
        return tf.concat([tf.tanh(tf.gather(table.read_value(), word)), branch], 1)

    def parallel(x: Any, word: Any) -> Any:
        results = []
        for device, rows, words in zip(devices[:2], tf.split(x, 2), tf.split(word, 2), strict=True):
            with tf.device(device.name):
                results.append(features(rows, words))
                joined = tf.concat(results, 0) if wrong else None
        with tf.device(devices.host):
            return joined if wrong else tf.concat(results, 0)

    return Program(parallel, features, {"x": sample(8, 6), "word": integers(3, 8)}, devices=2)


PAIRS: dict[str, Callable[[Devices, bool], Program]] = {
    make.__name__: make
    for make in (
        keras_layers,
        two_inputs,
        column_parallel,
        table_on_one,
        checked_on_the_host,
        state_handed_on,
        scored_after_the_scope,
        compared_with_all_rows,
        branches_joined,
    )
}
