"""Input pipelines and Keras."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from sample_programs import by_name, facts, function, gradient_ops, on, rows, unlinked, where

from harness import trace

pytestmark = pytest.mark.devices(min=4, kind=["logical-cpu", "gpu"])


def double_and_sine(value: Any) -> Any:
    return tf.sin(tf.cast(value, tf.float32) * 2.0)


def test_the_ops_of_a_pipeline_are_listed_and_it_is_not_claimed_where_they_ran() -> None:
    def fn() -> Any:
        data = tf.data.Dataset.range(4).map(double_and_sine).batch(2)
        return [tf.cumsum(part) for part in data]

    found = trace(fn)
    names = by_name(found)
    assert names["MapDataset/f/Sin"].role == names["MapDataset"].role == "data"
    assert names["MapDataset/f/Sin"].device is None
    assert names["MapDataset"].device is not None
    assert "MapDataset/f/mul" in names["MapDataset/f/Sin"].inputs
    assert len([op for op in found.ops if op.type == "IteratorGetNext"]) == 2
    assert where(found, "Cumsum") == ["CPU:0", "CPU:0"]
    assert facts(trace(fn)) == facts(found)


def test_a_pipeline_that_a_function_runs_through() -> None:
    data = tf.data.Dataset.range(4).map(double_and_sine).batch(2)

    @function()
    def fn(x: Any) -> Any:
        for part in data:
            with on(1):
                x = x + tf.reduce_sum(part)
        with on(2):
            return tf.cumsum(x)

    found = trace(fn, rows())
    assert where(found, "Cumsum") == ["CPU:2"]
    assert {op.role for op in found.ops if "Dataset/" in op.name} == {"data"}
    assert facts(trace(fn, rows())) == facts(found)


def model() -> Any:
    layers = tf.keras.layers
    made = tf.keras.Sequential([tf.keras.Input([3]), layers.Dense(5, activation="tanh"), layers.Dense(2)])
    made.compile("adam", "mse")
    return made


def test_a_keras_model_is_called_where_the_scope_says() -> None:
    made = model()

    def fn(x: Any) -> Any:
        with on(2):
            return made(x)

    for call in (fn, tf.function(fn)):
        assert where(trace(call, rows()), "MatMul") == ["CPU:2", "CPU:2"]


def test_fit_has_the_forward_the_backward_and_the_update_ops_of_each_step() -> None:
    made = model()
    x, y = np.ones([8, 3], np.float32), np.ones([8, 2], np.float32)

    def fn() -> None:
        made.fit(x, y, batch_size=4, verbose=0)

    trace(fn)  # makes the variables of the optimizer
    found = trace(fn)
    roles = Counter((op.role, op.type) for op in found.ops if op.device)
    assert roles["forward", "MatMul"] == 4
    assert roles["gradient", "MatMul"] == 6
    assert roles["update", "AssignSubVariableOp"] == 8
    assert roles["data", "IteratorGetNext"] == 2
    assert len(gradient_ops(found)) > 8
    assert unlinked(found) == []
    assert facts(trace(fn)) == facts(found)


def test_fit_in_eager_code_is_seen_op_by_op() -> None:
    made = model()
    made.compile("sgd", "mse", run_eagerly=True)
    x, y = np.ones([4, 3], np.float32), np.ones([4, 2], np.float32)
    found = trace(lambda: made.fit(x, y, batch_size=4, verbose=0))
    assert len(where(found, "MatMul")) == 2
    assert unlinked(found) == []
    assert {"update", "gradient", "forward", "data"} <= {op.role for op in found.ops}
