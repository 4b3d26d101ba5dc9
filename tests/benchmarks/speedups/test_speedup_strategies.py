"""Strategies of ``tf.distribute`` against ``make_parallel`` on the same step: both use all devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from dense import Dense
from programs import SEVERAL, compiled

import harness


def _strategy(name: str, devices: harness.Devices) -> Any:
    import tensorflow as tf

    names = [device.parsed.short for device in devices]
    if name == "mirrored":
        return tf.distribute.MirroredStrategy(names)
    return tf.distribute.experimental.CentralStorageStrategy(names, names[0])


@pytest.mark.devices(min=SEVERAL, kind=["logical-cpu", "gpu"])
@pytest.mark.parametrize("name", ["mirrored", "central_storage"])
def test_gradients_of_one_batch(
    speedup: Callable[..., harness.SpeedupRecord], devices: harness.Devices, name: str
) -> None:
    """How many times as fast ``make_parallel`` is. The strategy's weights are read, not updated: both do the same."""
    import tensorflow as tf

    dense = Dense(devices)
    strategy = _strategy(name, devices)
    with strategy.scope():
        variables = [tf.Variable(weights.numpy()) for weights in dense.weights]
    shards = strategy.experimental_distribute_values_from_function(
        lambda context: tf.split(dense.x, len(devices))[context.replica_id_in_sync_group]
    )

    def replica(x: Any) -> Any:
        with tf.GradientTape() as tape:
            y = x
            for weights in variables:
                y = tf.tanh(tf.matmul(y, weights))
            loss = tf.reduce_sum(tf.reduce_mean(tf.square(y), axis=1)) / dense.rows
        return tape.gradient(loss, variables)

    def by_strategy() -> Any:
        per_replica = strategy.run(replica, args=(shards,))
        return [strategy.reduce(tf.distribute.ReduceOp.SUM, gradient, axis=None) for gradient in per_replica]

    split = harness.make_parallel(dense.loss_per_row, devices)

    def by_harness() -> Any:
        with tf.device(devices[0].name):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(split(x=dense.x.read_value()))
            return tape.gradient(loss, dense.weights)

    record = speedup(
        compiled(by_strategy),
        compiled(by_harness),
        devices=devices,
        work=harness.Work(flops=3 * dense.forward_flops),
    )
    assert record.transfers is None or record.transfers > 0
