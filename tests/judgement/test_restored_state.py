"""State that nobody names and that stands where closures do not lead: it is restored between runs all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, make_parallel, verify

#: An error in the scope of a GPU: ragged tensors made dense, and texts.
NO_GPU_KERNEL = pytest.mark.devices(kind="logical-cpu")
X = np.random.default_rng(5).normal(size=(8, 3)).astype(np.float32)


class Slotted:
    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = tf.Variable(tf.zeros([3]))

    def add(self, x: Any) -> Any:
        return self.total.assign_add(tf.reduce_sum(x, axis=0))


class OnTheClass:
    total: Any = None

    @classmethod
    def add(cls, x: Any) -> Any:
        return cls.total.assign_add(tf.reduce_sum(x, axis=0))


def nested() -> Callable[[Any], Any]:
    def add(x: Any) -> Any:
        def inner() -> Any:
            return KEPT["total"].assign_add(tf.reduce_sum(x, axis=0))

        return inner()

    return add


KEPT: dict[str, Any] = {}


@pytest.mark.cases(1)
@pytest.mark.parametrize("where", ["slots", "class", "nested", "bound"])
def test_state_is_found_by_its_writes(devices: Devices, where: str) -> None:
    OnTheClass.total = tf.Variable(tf.zeros([3]))
    KEPT["total"] = tf.Variable(tf.zeros([3]))
    slotted = Slotted()
    add = {"slots": lambda x: slotted.add(x), "class": OnTheClass.add, "nested": nested(), "bound": slotted.add}[where]
    split = make_parallel(lambda x: tf.tanh(x), devices[:2])

    def parallel(x: Any) -> Any:
        return split(x=x) + add(x)

    def reference(x: Any) -> Any:
        return tf.tanh(x) + add(x)

    found = verify(parallel, reference, {"x": X}, devices=devices[:2])
    assert not [each for each in found.findings if each.kind in ("value", "nondeterminism")], found
    assert found.verdict is not Verdict.UNKNOWN, found
    wrong = verify(lambda x: parallel(x) + 0.1, reference, {"x": X}, devices=devices[:2])
    assert "value" in {each.kind for each in wrong.findings}, wrong


def test_a_table_of_counts_that_each_shard_moves_on_is_found(devices: Devices) -> None:
    counts = tf.Variable(tf.zeros([3], tf.int64), trainable=False)

    def counted(x: Any) -> Any:
        counts.assign_add(tf.ones([3], tf.int64))
        return tf.tanh(x)

    split = make_parallel(counted, devices[:2])
    found = verify(split, counted, {"x": X}, devices=devices[:2])
    assert "update was made once for each of the 2 shards" in found.reason or "updated" in found.reason, found
    right = make_parallel(tf.tanh, devices[:2])

    def once(x: Any) -> Any:
        counts.assign_add(tf.ones([3], tf.int64))
        return right(x=x)

    assert verify(once, counted, {"x": X}, devices=devices[:2]).passed


@pytest.mark.cases(1)
@pytest.mark.parametrize("kind", [pytest.param("ragged", marks=NO_GPU_KERNEL), "sparse"])
def test_ragged_and_sparse_inputs_whose_results_differ_are_compared(devices: Devices, kind: str) -> None:
    ragged = tf.RaggedTensor.from_tensor(tf.constant(X), lengths=[1, 2, 3, 1, 2, 3, 1, 2])
    x = ragged if kind == "ragged" else ragged.to_sparse()
    dense: Any = lambda x: tf.tanh(x.to_tensor() if kind == "ragged" else tf.sparse.to_dense(x))  # noqa: E731
    wrong = verify(lambda x: dense(x) * 1.001, dense, {"x": x}, devices=devices[:1])
    assert {each.kind for each in wrong.findings} == {"value"}, wrong
    assert verify(lambda x: dense(x), dense, {"x": x}, devices=devices[:1]).passed


@NO_GPU_KERNEL
def test_a_text_beside_a_number_goes_through_a_tape(devices: Devices) -> None:
    fn = lambda x: (tf.tanh(x), tf.strings.as_string(tf.range(tf.shape(x)[0])))  # noqa: E731
    found = verify(make_parallel(fn, devices[:2]), fn, {"x": X}, devices=devices[:2], gradients=True)
    assert not [each for each in found.findings if each.kind == "error"], found
