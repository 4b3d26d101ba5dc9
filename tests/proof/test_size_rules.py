"""Arithmetic of sizes that depend on the number of rows gives what TensorFlow's kernels give for each number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness.proof.algebra import Algebra
from harness.proof.evaluation import Lost
from harness.proof.graph import Run
from harness.proof.rules.sizes_of import MOVED, SIZE_ARITHMETIC
from harness.proof.sizes import Indivisible, Size

#: 2 m, 6 m + 4 and 5.
SIZES: tuple[Any, ...] = (Size((0, 2)), Size((4, 6)), 5)

SAMPLES: dict[str, Callable[[Any], Any]] = {
    "FloorDiv": lambda s: s[:2] // 2,
    "FloorMod": lambda s: s % 2,
    "Maximum": lambda s: tf.maximum(s, [1, 2, 3]),
    "Minimum": lambda s: tf.minimum(s, [1, 7, 3]),
    "Less": lambda s: s[:2] < s[1],
    "Greater": lambda s: s > 0,
    "LessEqual": lambda s: s <= tf.stack([s[0], s[0], 6]),
    "GreaterEqual": lambda s: s >= tf.stack([s[0], s[0], 6]),
    "Equal": lambda s: tf.equal(s, tf.stack([s[0], s[0], 5])),
    "NotEqual": lambda s: tf.not_equal(s, tf.stack([s[0], s[0], 5])),
    "SelectV2": lambda s: tf.where([True, False, True], s, -s),
    "Abs": lambda s: tf.abs(-s),
    "Prod": lambda s: tf.reduce_prod(tf.stack([s, s + 1]), [0, 1]),
    "Sum": lambda s: tf.reduce_sum(tf.stack([s, s + 1]), 1, keepdims=True),
    "Max": lambda s: tf.reduce_max(tf.stack([s, s + 1]), 0),
    "Min": lambda s: tf.reduce_min(tf.stack([s, s + 1])[:, :2], [1], keepdims=True),
    "Cumsum": lambda s: tf.cumsum(tf.stack([s, s + 1]), axis=-1),
    "Cumprod": lambda s: tf.math.cumprod(tf.stack([s, s + 1]), axis=1),
    "BroadcastArgs": lambda s: tf.raw_ops.BroadcastArgs(s0=s, s1=tf.stack([1, s[1], 1])),
    "DynamicStitch": lambda s: tf.dynamic_stitch([[2, 0, 1], [1, 3]], [s, tf.stack([7, s[0]])]),
    "TensorScatterUpdate": lambda s: tf.tensor_scatter_nd_update(s, [[2], [0]], [s[0], 9]),
    "Tile": lambda s: tf.tile(tf.reshape(s, [1, 3]), [2, 2]),
    "ReverseV2": lambda s: tf.reverse(s, [0]),
    "Roll": lambda s: tf.roll(s, 1, 0),
    "GatherNd": lambda s: tf.gather_nd(tf.stack([s, s + 1]), [[1, 0], [0, 2]]),
}


def _at(number: Any, m: int) -> int:
    return sum(each * m**k for k, each in enumerate(number.coefficients)) if isinstance(number, Size) else int(number)


def test_every_operation_on_sizes_has_a_sample() -> None:
    assert SAMPLES.keys() == SIZE_ARITHMETIC.keys() | MOVED.keys()


@pytest.mark.parametrize("kind", SAMPLES)
def test_sizes_are_what_the_kernel_gives_for_each_number_of_rows(kind: str) -> None:
    sample = SAMPLES[kind]
    graph = tf.function(sample, autograph=False).get_concrete_function(tf.TensorSpec([3], tf.int32)).graph
    assert kind in {op.type for op in graph.get_operations()}
    algebra = Algebra()
    (found,) = Run(algebra).graph(graph, [algebra.numbers(np.array(SIZES, object), "int32")])
    value = algebra.value(found)
    assert value is not None
    for m in (1, 2, 5):
        wanted = sample(tf.constant([_at(size, m) for size in SIZES])).numpy()
        assert np.array([_at(each, m) for each in value.reshape(-1)]).reshape(value.shape).tolist() == wanted.tolist()


@pytest.mark.parametrize("kind", ["Maximum", "FloorDiv", "Tile"])
def test_what_depends_on_the_number_of_rows_in_another_way_is_not_decided(kind: str) -> None:
    fn = {
        "Maximum": lambda s: tf.maximum(s[0], 3),
        "FloorDiv": lambda s: s[1] // 4,
        "Tile": lambda s: tf.tile(s[2:], s[:1]),
    }[kind]
    graph = tf.function(fn, autograph=False).get_concrete_function(tf.TensorSpec([3], tf.int32)).graph
    algebra = Algebra()
    try:
        (found,) = Run(algebra).graph(graph, [algebra.numbers(np.array(SIZES, object), "int32")])
    except Indivisible:
        return
    assert isinstance(found, Lost) or algebra.value(found) is None
