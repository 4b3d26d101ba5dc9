"""Ops that only move data: which of them moves it in another way than the reference does, and by what."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, verify
from harness.faults.samples import sample
from harness.judgement.diagnosis.wording import constant_texts

Model = Callable[[Any, Any], Any]


def groups(x: Any, count: Any) -> Any:
    rows = tf.reshape(x, [-1, count, 8 // count])  # the line
    return tf.reshape(rows - tf.reduce_mean(rows, 2, keepdims=True), [-1, 8])


def groups_of_a_computed_shape(x: Any, count: Any) -> Any:
    size = tf.shape(x)[0]
    rows = tf.reshape(x, [size, count, 8 // count])  # the line
    return tf.reshape(rows - tf.reduce_mean(rows, 2, keepdims=True), [size, 8])


def permuted(x: Any, axes: Any) -> Any:
    rows = tf.reshape(x, [-1, 2, 4])
    rows = tf.transpose(rows, axes)  # the line
    return tf.reshape(tf.nn.softmax(rows), [-1, 8])


def rolled(x: Any, shift: Any) -> Any:
    rows = tf.roll(x, shift, 1)  # the line
    return tf.square(rows)


def rolled_last(x: Any, shift: Any) -> Any:
    return tf.roll(tf.square(x), shift, 1)  # the line


def rolled_between(x: Any, shift: Any) -> Any:
    rows = tf.transpose(tf.reshape(x, [-1, 2, 4]), [0, 2, 1])
    rows = tf.roll(rows, shift, 1)  # the line
    rows = tf.transpose(rows, [0, 2, 1])
    return tf.nn.softmax(rows)


def padded(x: Any, left: Any) -> Any:
    rows = tf.pad(x, [[0, 0], [left, 4 - left]])  # the line
    return tf.nn.softmax(rows)


def sliced(x: Any, begin: Any) -> Any:
    rows = x[:, begin : begin + 4]  # the line
    return tf.nn.softmax(rows)


def strided(x: Any, stride: Any) -> Any:
    rows = x[:, ::stride]  # the line
    return tf.reduce_sum(tf.sin(rows), 1)


def divided(x: Any, columns: Any) -> Any:
    left, right = tf.split(x, [columns, 8 - columns], 1)  # the line
    return tf.concat([tf.tanh(left), tf.exp(right)], 1)


@pytest.mark.cases("padded-1-2-Pad")
@pytest.mark.parametrize("on_all", [False, True])
@pytest.mark.parametrize(
    ("model", "right", "wrong", "kind", "mine", "theirs"),
    [
        (groups, 2, 4, "Reshape", "the constant [-1, 4, 2]", "[-1, 2, 4]"),
        (groups_of_a_computed_shape, 2, 4, "Reshape", ", 4, 2]", ", 2, 4]"),
        (permuted, [0, 2, 1], [0, 1, 2], "Transpose", "the constant [0, 1, 2]", "[0, 2, 1]"),
        (rolled, 1, 2, "Roll", "the constant 2", "1"),
        (rolled_last, 1, 2, "Roll", "the constant 2", "1"),
        (rolled_between, 1, 2, "Roll", "the constant 2", "1"),
        (padded, 1, 2, "Pad", "the constant [[0, 0], [2, 2]]", "[[0, 0], [1, 3]]"),
        (sliced, 1, 2, "StridedSlice", "the constant [0, 2]", "[0, 1]"),
        (strided, 1, 2, "StridedSlice", "the constant [1, 2]", "[1, 1]"),
        (divided, 3, 4, "SplitV", "the constant [4, 4]", "[3, 5]"),
    ],
)
def test_the_op_that_moves_data_in_another_way_is_named(
    devices: Devices, model: Model, right: Any, wrong: Any, kind: str, mine: str, theirs: str, on_all: bool
) -> None:
    """The last device has more rows than the others, so that each has shapes of its own."""
    count = len(devices)

    def program(taken: list[Any]) -> Callable[..., Any]:
        def towers(x: Any) -> Any:
            results = []
            for device, rows, each in zip(devices, tf.split(x, [2] * (count - 1) + [3]), taken, strict=True):
                with tf.device(device.name):
                    results.append(model(rows, each))
            return tf.concat(results, 0)

        return towers

    def reference(x: Any) -> Any:
        return model(x, right)

    inputs = {"x": sample(2 * count + 1, 8)}
    assert verify(program([right] * count), reference, inputs, devices=devices).verdict is Verdict.PASS
    found = verify(
        program([wrong] * count if on_all else [right] * (count - 1) + [wrong]), reference, inputs, devices=devices
    )
    lines, start = inspect.getsourcelines(model)
    line = start + next(number for number, text in enumerate(lines) if "# the line" in text)
    assert kind in found.reason, found
    assert mine in found.reason, found
    there = "where the reference reads " if on_all else f"but on {devices[0].parsed.short} it reads "
    assert there in found.reason, found
    assert theirs in found.reason.split(there)[1], found
    assert f"test_moves_of_data.py:{line}" in found.reason, found


def test_shapes_of_the_shards_are_no_cause(devices: Devices) -> None:
    """Each shard is given a shape of its own, rightly; one of them divides by another number."""
    count = len(devices)
    sizes = [2] * (count - 1) + [3]

    def program(last: float) -> Callable[..., Any]:
        def towers(x: Any) -> Any:
            results = []
            for number, (device, rows) in enumerate(zip(devices, tf.split(x, sizes), strict=True)):
                with tf.device(device.name):
                    shaped = tf.reshape(rows, [sizes[number], 2, 4])
                    results.append(shaped / (last if number + 1 == count else 3.0))
            return tf.concat(results, 0)

        return towers

    def reference(x: Any) -> Any:
        return tf.reshape(x, [-1, 2, 4]) / 3.0

    inputs = {"x": np.abs(sample(2 * count + 1, 8)) + 1.0}
    assert verify(program(3.0), reference, inputs, devices=devices).verdict is Verdict.PASS
    found = verify(program(2.9), reference, inputs, devices=devices)
    assert "it reads the constant 2.9 where the reference reads 3" in found.reason, found
    assert "Reshape" not in found.reason, found


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ([1.0 + 1e-7, 2.0, 3.0, 4.0, 9.0], [1.0, 2.0, 3.0, 4.0, 5.0], "9 at [4]"),
        ([np.nan, 2.0, 3.0, 4.0, 9.0], [np.nan, 2.0, 3.0, 4.0, 5.0], "9 at [4]"),
        ([1, 2, 3, 4, 5], [1, 7, 3, 4, 5], "2 at [1]"),
        ([True, True, False, True, True], [True, True, True, True, True], "False at [2]"),
    ],
)
def test_of_large_constants_the_element_that_differs_most_is_given(mine: Any, theirs: Any, expected: str) -> None:
    dtype = np.float32 if isinstance(mine[1], float) else None
    here, there = constant_texts(np.array(mine, dtype), np.array(theirs, dtype))
    assert here == f"array of shape [5] with {expected}"
    assert there.startswith("one with ")
