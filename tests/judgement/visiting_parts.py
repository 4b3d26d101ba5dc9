"""Programs whose devices read parts of other devices, some of them fewer than others, beside work that is misplaced."""

from __future__ import annotations

from typing import Any

import numpy as np
from shard_programs import Program

from harness.devices.device import Devices
from harness.faults.samples import sample


def _blocks(devices: Devices, wanted: Any, wrong: bool) -> Program:
    """A product of block matrices: each device has a row of blocks of ``a``, and reads those of ``b`` that it needs."""
    import tensorflow as tf

    count = len(devices)
    dense = np.kron(wanted, np.ones((2, 2))).astype(np.float32)

    def parallel(a: Any, b: Any) -> Any:
        outputs = []
        visiting = tf.split(b, count)
        for number, (device, rows) in enumerate(zip(devices, tf.split(a, count), strict=True)):
            with tf.device(device.name):
                blocks = tf.split(rows, count, axis=1)
                *needed, last = [at for at in range(count) if wanted[number, at]]
                products = [tf.matmul(blocks[at], visiting[at]) for at in needed]
                with tf.device(devices[0].name if wrong and number == 2 else device.name):
                    products.append(tf.matmul(blocks[last], visiting[last]))
                outputs.append(tf.add_n(products))
        return tf.concat(outputs, 0)

    return Program(parallel, lambda a, b: tf.matmul(a * dense, b), {"a": sample(8, 8), "b": sample(8, 6, seed=1)})


def blocks_below_the_diagonal(devices: Devices, wrong: bool) -> Program:
    """As in attention with a causal mask: the last device reads all blocks, the first one its own."""
    return _blocks(devices, np.tril(np.ones((4, 4))), wrong)


def all_blocks_but_one(devices: Devices, wrong: bool) -> Program:
    wanted = np.ones((4, 4))
    wanted[1, 0] = 0
    return _blocks(devices, wanted, wrong)


def experts_that_visit(devices: Devices, wrong: bool) -> Program:
    """One variable has the weights of all experts, and each device reads those that its rows need."""
    import tensorflow as tf

    weights = tf.Variable(sample(4, 6, 6))
    needed = [[0], [1, 2], [2, 3], [3, 0]]

    def reference(x: Any) -> Any:
        parts = zip(needed, tf.split(x, 4), strict=True)
        return tf.concat([tf.add_n([tf.tanh(tf.matmul(rows, weights[at])) for at in own]) for own, rows in parts], 0)

    def parallel(x: Any) -> Any:
        experts, outputs = tf.unstack(weights), []
        for number, (device, rows) in enumerate(zip(devices, tf.split(x, 4), strict=True)):
            with tf.device(device.name):
                *first, last = needed[number]
                results = [tf.tanh(tf.matmul(rows, experts[at])) for at in first]
                with tf.device(devices[1].name if wrong and number == 3 else device.name):
                    results.append(tf.tanh(tf.matmul(rows, experts[last])))
                outputs.append(tf.add_n(results))
        return tf.concat(outputs, 0)

    return Program(parallel, reference, {"x": sample(8, 6)})


def one_projection_of_three(devices: Devices, wrong: bool) -> Program:
    """Queries, keys and values are the same step three times; the values of one shard are computed elsewhere."""
    import tensorflow as tf

    weights = [tf.Variable(sample(6, 6, seed=seed)) for seed in range(3)]

    def attention(rows: Any, scope: str | None) -> Any:
        queries, keys = tf.matmul(rows, weights[0]), tf.matmul(rows, weights[1])
        with tf.device(scope):
            values = tf.matmul(rows, weights[2])
        return tf.matmul(tf.nn.softmax(tf.matmul(queries, keys, transpose_b=True)), values)

    def parallel(x: Any) -> Any:
        outputs = []
        for number, (device, rows) in enumerate(zip(devices, tf.split(x, 4), strict=True)):
            with tf.device(device.name):
                outputs.append(attention(rows, devices[0].name if wrong and number == 1 else device.name))
        return tf.concat(outputs, 0)

    def reference(x: Any) -> Any:
        return tf.concat([attention(rows, None) for rows in tf.split(x, 4)], 0)

    return Program(parallel, reference, {"x": sample(12, 6)})


def columns_that_are_transposed_there_and_back(devices: Devices, wrong: bool) -> Program:
    """TensorFlow optimises away what is transposed twice, as all that one of the devices does to ``x``."""
    import tensorflow as tf

    bias = tf.Variable(sample(8))

    def reference(x: Any, y: Any) -> Any:
        return y + bias[:, None], y, x

    def parallel(x: Any, y: Any) -> Any:
        shards = []
        for device, columns, others in zip(devices[:2], tf.split(x, 2, axis=1), tf.split(y, 2, axis=1), strict=True):
            with tf.device(device.name):
                rows, turned = tf.transpose(columns), tf.transpose(others)
                with tf.device(devices[0].name if wrong else device.name):
                    moved = turned + bias
                shards.append((tf.transpose(moved), tf.transpose(turned), tf.transpose(rows)))
        return tuple(tf.concat(each, 1) for each in zip(*shards, strict=True))

    return Program(parallel, reference, {"x": sample(8, 4), "y": sample(8, 4, seed=1)}, devices=2)


PAIRS = {
    make.__name__: make
    for make in (
        blocks_below_the_diagonal,
        all_blocks_but_one,
        experts_that_visit,
        one_projection_of_three,
        columns_that_are_transposed_there_and_back,
    )
}
