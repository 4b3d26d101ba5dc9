"""Programs that send a step of each shard to another device where ``wrong``, and right ones that look alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shard_programs import Program, layers, on_shards

from harness.devices.device import Devices
from harness.faults.samples import sample


def head_on_the_next(devices: Devices, wrong: bool) -> Program:
    """Each shard's head runs on the next device, and its result comes back."""
    import tensorflow as tf

    first, second, _ = layers()

    def parallel(x: Any) -> Any:
        outputs = []
        for number, part in enumerate(tf.split(x, 4)):
            with tf.device(devices[number].name):
                hidden = first(part)
            with tf.device(devices[(number + wrong) % 4].name):
                head = second(hidden)
            with tf.device(devices[number].name):
                outputs.append(head - part)
        return tf.concat(outputs, 0)

    return Program(parallel, lambda x: second(first(x)) - x, {"x": sample(8, 6)})


def one_of_two_heads_on_the_previous(devices: Devices, wrong: bool) -> Program:
    """Nothing comes back, but another head stays."""
    import tensorflow as tf

    first, second, _ = layers()

    def parallel(x: Any) -> Any:
        outputs = []
        for number, part in enumerate(tf.split(x, 4)):
            with tf.device(devices[number].name):
                hidden = first(part)
                one = first(hidden)
            with tf.device(devices[number - wrong].name):
                outputs.append((one, second(hidden)))
        return tuple(tf.concat(each, 0) for each in zip(*outputs, strict=True))

    return Program(parallel, lambda x: (first(first(x)), second(first(x))), {"x": sample(8, 6)})


def normalised_in_no_scope(devices: Devices, wrong: bool) -> Program:
    """The statistics are those of the whole batch; what they are taken off is each shard's own."""
    import tensorflow as tf

    first, second, _ = layers()

    def parallel(x: Any) -> Any:
        hidden = on_shards(devices, first, x)
        mean = tf.reduce_mean(tf.concat(hidden, 0), 0)
        outputs = []
        for device, rows in zip(devices, hidden, strict=True):
            with tf.device(None if wrong else device.name):
                outputs.append(second(rows - mean))
        return tf.concat(outputs, 0)

    def reference(x: Any) -> Any:
        return second(first(x) - tf.reduce_mean(first(x), 0))

    return Program(parallel, reference, {"x": sample(8, 6)})


def parts_of_a_momentum_on_the_first(devices: Devices, wrong: bool) -> Program:
    """Each device keeps a part of the momentum of weights that all of them read."""
    import tensorflow as tf

    weights = tf.Variable(sample(8, 6, seed=1))
    momenta = []
    for device in devices:
        with tf.device(device.name):
            momenta.append(tf.Variable(sample(2, 6, seed=2)))

    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(tf.matmul(x, weights)) ** 2)
        return tape.gradient(loss, weights)

    def update(number: int, part: Any) -> Any:
        return momenta[number].assign(0.9 * momenta[number] + part)

    def parallel(x: Any) -> Any:
        parts = [tf.split(each, 4) for each in on_shards(devices, gradient, x)]
        for number in range(4):
            with tf.device(devices[0 if wrong else number].name):
                update(number, tf.add_n([each[number] for each in parts]))
        return weights.assign_sub(0.1 * tf.concat([momentum.read_value() for momentum in momenta], 0))

    def reference(x: Any) -> Any:
        for number, part in enumerate(tf.split(gradient(x), 4)):
            update(number, part)
        return weights.assign_sub(0.1 * tf.concat([momentum.read_value() for momentum in momenta], 0))

    return Program(parallel, reference, {"x": sample(8, 8)})


def judged_by_the_neighbours_network(devices: Devices) -> Program:
    """Each device has a network of its own, which its neighbour's rows visit."""
    import tensorflow as tf

    networks = []
    for seed, device in enumerate(devices):
        with tf.device(device.name):
            networks.append(tf.Variable(sample(6, 6, seed=seed)))

    def compared(x: Any, names: list[Any]) -> Any:
        outputs = []
        for number, part in enumerate(tf.split(x, 4)):
            with tf.device(names[number]):
                own = tf.tanh(tf.matmul(part, networks[number]))
            with tf.device(names[number - 1]):
                other = tf.tanh(tf.matmul(part, networks[number - 1]))
            with tf.device(names[number]):
                outputs.append(tf.square(own - other))
        return tf.concat(outputs, 0)

    names = [device.name for device in devices]
    return Program(lambda x: compared(x, names), lambda x: compared(x, [None] * 4), {"x": sample(8, 6)})


def second_batch_after_all_of_the_first(devices: Devices) -> Program:
    """All devices wait for all others between two batches."""
    import tensorflow as tf

    first, second, _ = layers()

    def parallel(x: Any, y: Any) -> Any:
        one = on_shards(devices, first, x)
        with tf.control_dependencies([tf.group(*one)] if not tf.executing_eagerly() else []):
            two = on_shards(devices, second, y)
        return tf.concat(one, 0), tf.concat(two, 0)

    return Program(parallel, lambda x, y: (first(x), second(y)), {"x": sample(8, 6), "y": sample(8, 6, seed=1)})


def chunks_in_order_on_each_device(devices: Devices) -> Program:
    """A device works on one half of its rows after the other, so that less memory is needed."""
    import tensorflow as tf

    _, _, both = layers()

    def halves(rows: Any) -> Any:
        done: list[Any] = []
        for half in tf.split(rows, 2):
            with tf.control_dependencies(done[-1:]):
                done.append(both(tf.identity(half)))
        return tf.concat(done, 0)

    return Program(lambda x: tf.concat(on_shards(devices, halves, x), 0), both, {"x": sample(8, 6)})


def rows_prepared_in_numpy(devices: Devices) -> Program:
    """In eager code no op reads the rows, but each device works on what NumPy has made of its own."""
    import numpy as np
    import tensorflow as tf

    _, _, both = layers()

    def prepared(rows: Any) -> Any:
        made = tf.numpy_function(lambda each: np.clip(each, -0.5, 0.5), [rows], tf.float32)
        return tf.ensure_shape(made, rows.shape)

    def parallel(x: Any) -> Any:
        parts = [prepared(rows) for rows in tf.split(x, 4)]
        outputs = []
        for device, rows in zip(devices, parts, strict=True):
            with tf.device(device.name):
                outputs.append(both(rows))
        return tf.concat(outputs, 0)

    return Program(parallel, lambda x: both(prepared(x)), {"x": sample(8, 6)})


PAIRS: dict[str, Callable[[Devices, bool], Program]] = {
    make.__name__: make
    for make in (
        head_on_the_next,
        one_of_two_heads_on_the_previous,
        normalised_in_no_scope,
        parts_of_a_momentum_on_the_first,
    )
}
CLEAN: tuple[Callable[[Devices], Program], ...] = (
    judged_by_the_neighbours_network,
    second_batch_after_all_of_the_first,
    chunks_in_order_on_each_device,
    rows_prepared_in_numpy,
)
