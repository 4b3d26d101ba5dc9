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


def _gradients_by_harness(dense: Dense) -> Callable[[], Any]:
    """The gradients of the mean loss by ``make_parallel``."""
    import tensorflow as tf

    split = harness.make_parallel(dense.loss_per_row, dense.devices)

    def gradients() -> Any:
        with tf.device(dense.devices[0].name):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(split(x=dense.x.read_value()))
            return tape.gradient(loss, dense.weights)

    return gradients


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

    record = speedup(
        compiled(by_strategy),
        compiled(_gradients_by_harness(dense)),
        devices=devices,
        work=harness.Work(flops=3 * dense.forward_flops),
    )
    assert record.transfers is None or record.transfers > 0


@pytest.mark.devices(min=SEVERAL, kind="logical-cpu")
def test_gradients_of_one_batch_on_a_mesh(
    speedup: Callable[..., harness.SpeedupRecord], devices: harness.Devices
) -> None:
    """The same for DTensor's data-parallel layout: each device holds its rows of the batch, and the whole weights."""
    import tensorflow as tf

    dtensor = tf.experimental.dtensor
    dense = Dense(devices)
    mesh = dtensor.create_mesh([("rows", len(devices))], devices=[device.parsed.short for device in devices])
    whole = dtensor.Layout.replicated(mesh, rank=2)
    weights = [dtensor.copy_to_mesh(weight.numpy(), whole) for weight in dense.weights]
    x = dtensor.relayout(dtensor.copy_to_mesh(dense.x.numpy(), whole), dtensor.Layout.batch_sharded(mesh, "rows", 2))
    # Ops on a mesh are not traced, so that the record cannot tell that they ran on all devices. Where the rows are can.
    parts = dtensor.unpack(x)
    assert [len(part) for part in parts] == [dense.rows // len(devices)] * len(devices)
    assert len({part.backing_device for part in parts}) == len(devices)

    @tf.function  # type: ignore[untyped-decorator]
    def step(x: Any, weights: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            y = x
            for weight in weights:
                y = tf.tanh(tf.matmul(y, weight))
            loss = tf.reduce_mean(tf.square(y))
        # Each device has the gradient of its rows; DTensor adds them up for the layout that is asked for.
        return [dtensor.relayout(gradient, whole) for gradient in tape.gradient(loss, weights)]

    def by_mesh() -> Any:
        return [dtensor.unpack(gradient)[0] for gradient in step(x, weights)]

    record = speedup(
        by_mesh,
        compiled(_gradients_by_harness(dense)),
        devices=devices,
        work=harness.Work(flops=3 * dense.forward_flops),
    )
    assert record.transfers is None or record.transfers > 0
