"""Right programs: each device cuts its own result into chunks, which then travel round all devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shard_programs import Program, layers

from harness.devices.device import Devices
from harness.faults.samples import sample


def _summed_in_a_ring(devices: Devices, own: list[Any]) -> list[Any]:
    """The sum over all devices, of shape (8,), on each: a reduce-scatter, then an all-gather."""
    import tensorflow as tf

    count = len(devices)
    chunks = []
    for device, value in zip(devices, own, strict=True):
        with tf.device(device.name):
            chunks.append(tf.split(value, count))
    for add in (True, False):
        for turn in range(count - 1):
            before = [list(each) for each in chunks]
            for here, device in enumerate(devices):
                chunk = (here - turn - add) % count
                with tf.device(device.name):
                    given = before[here - 1][chunk]
                    chunks[here][chunk] = before[here][chunk] + given if add else tf.identity(given)
    sums = []
    for device, each in zip(devices, chunks, strict=True):
        with tf.device(device.name):
            sums.append(tf.concat(each, 0))
    return sums


def _on_shards(devices: Devices, partial: Callable[[Any], Any]) -> Program:
    """Each device computes ``partial`` of its rows; the sums travel in a ring."""
    import tensorflow as tf

    def parallel(x: Any) -> Any:
        own = []
        for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                own.append(partial(part))
        return _summed_in_a_ring(devices, own)[0]

    return Program(parallel, partial, {"x": sample(16, 6)})


def ring_all_reduce(devices: Devices) -> Program:
    import tensorflow as tf

    first, _, _ = layers()
    return _on_shards(devices, lambda x: tf.reduce_sum(tf.reshape(first(x), [-1, 8]), 0))


def ring_all_reduce_of_gradients(devices: Devices, scale: float = 1.0) -> Program:
    import tensorflow as tf

    weights = tf.Variable(sample(6, 8, seed=1))

    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(tf.matmul(x, weights)))
        return tf.reshape(tape.gradient(loss, weights) * scale, [-1])

    return _on_shards(devices, gradient)


def ring_all_reduce_of_scaled_gradients(devices: Devices) -> Program:
    return ring_all_reduce_of_gradients(devices, 0.25)


CLEAN: tuple[Callable[[Devices], Program], ...] = (
    ring_all_reduce,
    ring_all_reduce_of_gradients,
    ring_all_reduce_of_scaled_gradients,
)
