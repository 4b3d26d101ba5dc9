"""Batches whose size is known only when the graph runs: each shard but the first is a branch of a condition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness


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
