"""What ``verify`` holds of the results of its runs: a model's gradients are as large as its weights."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from harness.judgement.runs import Result, as_result, parts_of
from harness.judgement.sensitivity import Spread
from harness.judgement.tolerance import Sensitivity


def test_gradients_of_a_replay_are_let_go_one_by_one() -> None:
    raw = (tf.zeros(2), [tf.fill(3, float(number)) for number in range(4)])
    alive = [weakref.ref(gradient) for gradient in raw[1]]

    def counted() -> Iterator[Any]:
        for array in parts_of(raw)[1]:
            yield array
            held.append(sum(each() is not None for each in alive))

    held: list[int] = []
    expected = Result(None, (), tuple(np.zeros(3, np.float32) for _ in alive))
    spread = Spread.start(expected, 2)
    spread.add(expected, ((), counted(), ()))
    assert held[0] <= 4
    assert held[-1] <= 1
    assert [each.change.max() for each in spread.gradients] == [0.0, 1.0, 2.0, 3.0]


def test_gradients_that_are_kept_while_graphs_are_built_leave_the_allocator_of_tensorflow() -> None:
    with tf.GradientTape() as tape:
        x = tf.constant([1.0, 2.0])
        tape.watch(x)
        y = x * x
    raw = (y, [tape.gradient(y, x), None])
    found = as_result(raw, copied=True).gradients
    assert found[0] is not None
    assert found[0].flags.owndata
    np.testing.assert_array_equal(found[0], [2.0, 4.0])
    assert found[1] is None


def test_changes_of_float32_take_half_the_memory_and_give_the_same_bounds_within_one_percent() -> None:
    draw = np.random.default_rng(0)
    base = draw.normal(size=1000).astype(np.float32)
    moved = (base * (1 + 1e-6 * draw.normal(size=1000))).astype(np.float32)
    change = np.abs(moved - base)
    expected = Result(None, (base,))
    spread = Spread.start(expected, 4)
    spread.add(expected, ((moved,), (), ()))
    kept = spread.outputs[0]
    assert kept.change.nbytes == change.nbytes // 2
    exact = Sensitivity(change, 4).bound(base, 2.0**-23)
    np.testing.assert_allclose(kept.bound(base, 2.0**-23), exact, rtol=0.01)
    spread.add(expected, ((base,), (), ()))
    np.testing.assert_array_equal(spread.outputs[0].change, kept.change)


def test_changes_of_other_dtypes_keep_their_digits() -> None:
    base = np.array([1.0, 2.0])
    whole = np.array([1, 2])
    expected = Result(None, (base, whole))
    spread = Spread.start(expected, 4)
    spread.add(expected, ((base + 1e-12, whole + 1001), (), ()))
    assert spread.outputs[0].change.dtype == np.float64
    np.testing.assert_array_equal(spread.outputs[1].change, [1001.0, 1001.0])
