"""Batches whose size is known only when the graph runs: each shard but the first is a branch of a condition."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness


@pytest.mark.cases(1)
@pytest.mark.parametrize("activation", ["silu", "twice"])
def test_a_gradient_of_the_functions_own_holds_for_a_batch_of_unknown_size(
    devices: harness.Devices, activation: str
) -> None:
    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def twice(x: Any) -> Any:
        return 2.0 * x, lambda upstream: 2.0 * upstream

    weights = tf.Variable(tf.random.stateless_normal([3, 3], (1, 2)))

    def dense(x: Any) -> Any:
        y = tf.matmul(x, weights)
        return tf.nn.silu(y) if activation == "silu" else twice(y)

    x = {"x": tf.random.stateless_normal([7, 3], (3, 4))}
    parallel = harness.make_parallel(dense, devices)
    verification = harness.verify(
        parallel, dense, x, devices=devices, variables=[weights], gradients=True, modes=("dynamic",)
    )
    assert verification.passed, str(verification)
    assert verification.exercised.gradient_ops
    few = tf.function(lambda x: parallel(x=x), input_signature=[tf.TensorSpec([None, 3])])(x["x"][:1])
    np.testing.assert_allclose(few, dense(x["x"][:1]), rtol=1e-6)


def test_a_tensor_that_a_gradient_of_the_functions_own_keeps_serves_other_gradients_too(
    devices: harness.Devices,
) -> None:
    def gate(x: Any, scale: Any) -> Any:
        return {"square": x * x, "silu": tf.nn.silu(x) * scale, "scale": tf.nn.silu(scale) * x}

    parallel = harness.make_parallel(gate, devices, broadcast=["scale"])
    x = {"x": tf.random.stateless_normal([7, 3], (3, 4)), "scale": tf.random.stateless_normal([3], (5, 6))}
    verification = harness.verify(parallel, gate, x, devices=devices, gradients=True, modes=("dynamic",))
    assert verification.passed, str(verification)


@pytest.mark.parametrize("rows", [7, None])
def test_the_largest_of_what_a_monotonic_function_gives_is_each_shards_own(
    devices: harness.Devices, rows: int | None
) -> None:
    def largest(x: Any) -> Any:
        return tf.reduce_max(tf.nn.relu(x), axis=1)

    def in_a_graph(fn: Callable[..., Any]) -> Any:
        return tf.function(lambda x: fn(x=x), input_signature=[tf.TensorSpec([rows, 3, 4])])(x)

    x = tf.random.stateless_normal([7, 3, 4], (3, 4))
    for parallel in (
        harness.make_parallel(largest, devices),
        harness.make_parallel(largest, devices[::-1]),
        harness.pipeline([largest, tf.identity], devices, microbatches=3),
    ):
        np.testing.assert_array_equal(in_a_graph(parallel), largest(x))


def pool_few_rows() -> None:
    """With fewer rows than shards, the gradient of a pool would run on 0 rows: with oneDNN that aborts the process."""
    devices = harness.configure("cpu:4")
    weights = tf.Variable(tf.random.stateless_normal([3, 3], (1, 2)))

    def pool(x: Any) -> Any:
        return tf.nn.max_pool1d(tf.matmul(x, weights), 2, 2, "VALID")

    def pool_silu(x: Any) -> Any:
        return tf.nn.silu(pool(x))

    def gradient(fn: Callable[..., Any]) -> Callable[[Any], Any]:
        @tf.function(input_signature=[tf.TensorSpec([None, 4, 3])])  # type: ignore[untyped-decorator]
        def step(x: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                result = fn(x=x)
            return result, *tape.gradient(result, [x, weights])

        stepped: Callable[[Any], Any] = step
        return stepped

    for parallel, reference in (
        (harness.make_parallel(pool, devices), pool),
        (harness.make_parallel(pool_silu, devices), pool_silu),
        (harness.pipeline([pool, tf.nn.silu], devices, microbatches=4), pool_silu),
    ):
        for rows in (1, 2, 3, 5):
            x = tf.random.stateless_normal([rows, 4, 3], (3, 4))
            for found, expected in zip(gradient(parallel)(x), gradient(reference)(x), strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("onednn", ["0", "1"])
def test_no_shard_is_empty_where_the_batch_is_not(
    fresh_process: Callable[..., subprocess.CompletedProcess[str]], onednn: str
) -> None:
    fresh_process(pool_few_rows, TF_ENABLE_ONEDNN_OPTS=onednn)


def test_a_host_that_is_one_of_the_devices_may_join_what_they_made(devices: harness.Devices) -> None:
    some = harness.Devices([devices[1], devices[0], devices[2]], spec=devices.spec, host=devices.host)

    def model(x: Any) -> Any:
        return tf.reduce_logsumexp(tf.tanh(x), axis=1)

    parallel = harness.make_parallel(model, some)
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float16)
    found = harness.verify(parallel, model, {"x": x}, devices=some, gradients=True, modes=("dynamic",))
    assert found.findings == ()
