"""How often functions are traced and values are read: counted while it is asked for, and as it was afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from harness._tensorflow import count_reads, count_traces


def test_each_tracing_is_counted_and_a_call_of_what_was_traced_is_not(devices: Any) -> None:
    double = tf.function(lambda x: 2.0 * x)
    with count_traces() as traces:
        double(tf.ones([2]))
        first = traces.times
        double(tf.zeros([2]))
        assert first == traces.times >= 1
        double(tf.ones([3]))
        double(tf.ones([3, 3]))
        assert traces.times > first
    after = traces.times
    double(tf.ones([2, 2, 2]))
    assert traces.times == after, "the body has ended"


def test_the_graph_of_a_pipeline_and_of_a_keras_model_are_counted(devices: Any) -> None:
    with count_traces() as traces:
        tf.data.Dataset.range(3).map(lambda x: x + 1)
    assert traces.times >= 1
    model = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
    with count_traces() as traces:
        model.predict(tf.ones([1, 2]), verbose=0)
    assert traces.times >= 1


def test_eager_ops_are_no_tracing(devices: Any) -> None:
    with count_traces() as traces:
        tf.matmul(tf.ones([2, 2]), tf.ones([2, 2]))
    assert traces.times == 0


@pytest.mark.parametrize(
    "read",
    [
        lambda tensor: tensor.numpy(),
        float,
        bool,
        str,
        lambda tensor: [1.0] if tensor else [],
        lambda tensor: memoryview(tensor.numpy()),
    ],
)
def test_reading_a_value_is_counted(devices: Any, read: Callable[[Any], object]) -> None:
    tensor = tf.constant(1.0)
    with count_reads() as reads:
        read(tensor)
    assert reads.times >= 1
    before = reads.times
    read(tensor)
    assert reads.times == before, "the body has ended"


def test_computing_with_a_value_is_no_reading(devices: Any) -> None:
    tensor = tf.constant(1.0)
    double = tf.function(lambda x: 2.0 * x)
    double(tensor)
    with count_reads() as reads:
        double(tensor)
        tf.reduce_sum(tensor * 2.0)
    assert reads.times == 0


def test_it_is_as_it_was_also_after_an_error(devices: Any) -> None:
    def read_and_fail() -> None:
        tf.constant(1.0).numpy()
        raise KeyError

    with count_reads() as reads, pytest.raises(KeyError):
        read_and_fail()
    assert reads.times == 1
    tf.constant(1.0).numpy()
    assert reads.times == 1
