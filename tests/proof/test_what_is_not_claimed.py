"""Batch sizes for which numbers overflow, programs that raise an error, and refutations of what may be equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from proof_pairs import array

from harness import prove
from harness.proof.algebra import Algebra
from harness.proof.claim import ProofResult
from harness.proof.sizes import Size, Unprovable


def _scope(factor: int) -> str:
    def scaled(x: Any) -> Any:
        return x * tf.cast(tf.shape(x)[0] * factor // factor, tf.float32)

    def plain(x: Any) -> Any:
        return x * tf.cast(tf.shape(x)[0], tf.float32)

    proof = prove(scaled, plain, {"x": array(8, 5)})
    assert proof.proved
    return proof.scope


def test_nothing_is_claimed_for_batches_whose_sizes_overflow() -> None:
    assert _scope(1 << 10) == "every batch size"
    assert _scope(1 << 27) == "these shapes"  # 16 rows are too many


def test_nor_for_those_whose_lists_of_sizes_do() -> None:
    sizes = np.array([Size((0, 1 << 27)), 1], object)
    assert Algebra().numbers(sizes, "int64").shape == (2,)
    with pytest.raises(Unprovable, match="may overflow with 256 rows"):
        Algebra().numbers(sizes, "int32")


def test_a_program_that_raises_an_error_is_not_proved() -> None:
    def divided(x: Any, by: int) -> Any:
        sizes = tf.range(3) // (tf.rank(x) - by)
        return tf.cond(
            tf.reduce_sum(x) > 0, lambda: tf.reshape(x, [-1]), lambda: tf.fill([40], 1.0) * float(sizes is None)
        )

    def by_axes(x: Any, *axes: int) -> Any:
        return tf.raw_ops.Sum(input=x[:, :1], axis=[*axes])

    inputs = {"x": array(8, 5)}
    assert prove(lambda x: divided(x, 1), lambda x: divided(x, 1), inputs).proved
    failing = prove(lambda x: divided(x, 2), lambda x: divided(x, 1), inputs)
    assert not failing.proved
    assert failing.results[0].why.startswith("FloorDiv fails")
    assert prove(lambda x: by_axes(x, -1), lambda x: by_axes(x, 1), inputs).proved
    assert not prove(lambda x: by_axes(x, 1, -1), lambda x: by_axes(x, 1), inputs).proved

    def updated(x: Any, rows: int) -> Any:
        axes = tf.raw_ops.BroadcastGradientArgs(s0=tf.shape(x), s1=[rows, 5])[0]
        with tf.control_dependencies([axes]):
            return tf.tanh(x)

    assert prove(lambda x: updated(x, 1), lambda x: updated(x, 8), inputs).proved
    assert not prove(lambda x: updated(x, 3), lambda x: updated(x, 8), inputs).proved


def _last(parallel: Any, reference: Any) -> ProofResult:
    return prove(parallel, reference, {"x": array(8, 5)}).results[-1]


def _spread(x: Any) -> Any:
    first, second = tf.pad(x[:4], [[0, 4], [0, 0]]), tf.pad(tf.transpose(x)[:, 4:], [[0, 0], [4, 0]])
    return tf.transpose(first) + second


def test_what_may_be_equal_is_not_refuted() -> None:
    """By masks, by weights of rows in one constant, transposed, and as copies: all of these are equal."""
    mask = np.array([[1.0]] * 4 + [[0.0]] * 4, np.float32)
    weights = np.array([[0.5]] * 4 + [[1.0]] * 4, np.float32)

    def total(x: Any) -> Any:
        return tf.reduce_sum(x, 0)

    equal = [
        _last(lambda x: total((x * mask)[:4]), lambda x: total(x * mask)),
        _last(lambda x: (total(x), total(x[:4])), lambda x: (total(x), total(x * mask))),
        _last(lambda x: (total(x), total(x[:4]) / 2 + total(x[4:])), lambda x: (total(x), total(x * weights))),
        _last(_spread, lambda x: tf.transpose(x)),
        _last(lambda x: 2 * total(tf.tile(x, [2, 1])[:8]), lambda x: total(tf.tile(x, [2, 1]))),
    ]
    assert not any(each.refuted or each.proved for each in equal)
    differs = _last(lambda x: (total(x), total(x[:4]) / 2 + total(x[4:])), lambda x: (total(x), total(x)))
    assert (differs.refuted, differs.why) == (True, "shards have the weights 1/2 and 1")
