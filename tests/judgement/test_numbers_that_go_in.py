"""The numbers that go in: whole ones are added exactly unless real ones join them, and equal rows show no order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, make_parallel, verify

RANDOM = np.random.default_rng(0)
#: Whole numbers, as counts or the values of pixels are.
COUNTS = RANDOM.integers(0, 5, size=(64, 9)).astype(np.float32)
WEIGHTS = RANDOM.normal(size=(9, 5)).astype(np.float32)


def _of_a_variable() -> Callable[..., Any]:
    weights = tf.Variable(WEIGHTS)
    return lambda x: x @ weights


def _of_a_tensor() -> Callable[..., Any]:
    weights = tf.constant(WEIGHTS)
    return lambda x: x @ weights


def _of_a_branch() -> Callable[..., Any]:
    return lambda x: tf.cond(tf.reduce_max(x) >= 0.0, lambda: x * 0.37, lambda: x)


@pytest.mark.cases("_of_a_branch")
@pytest.mark.parametrize("made", [_of_a_variable, _of_a_tensor, _of_a_branch, lambda: lambda x: x * 0.37])
def test_sums_of_real_multiples_of_whole_numbers_may_round(devices: Devices, made: Callable[..., Any]) -> None:
    fn = made()

    def reference(x: Any) -> Any:
        return tf.reduce_sum(fn(x), axis=0)

    def towers(x: Any, share: float = 1.0) -> Any:
        sums = []
        for device, rows in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                sums.append(reference(rows))
        return tf.add_n(sums[::-1]) * share

    found = verify(towers, reference, {"x": COUNTS}, devices=devices, gradients=True)
    assert not [each for each in found.findings if each.kind in ("value", "gradient")], found
    wrong = verify(lambda x: towers(x, 1.001), reference, {"x": COUNTS}, devices=devices, gradients=False)
    assert {each.kind for each in wrong.findings} == {"value"}, wrong
    assert "(rounding)" in str(wrong)


def test_sums_of_whole_numbers_may_not(devices: Devices) -> None:
    weights = tf.Variable(np.round(50 * WEIGHTS))
    reference: Any = lambda x: tf.reduce_sum(tf.abs(x @ weights), axis=0)  # noqa: E731
    other: Any = lambda x: tf.add_n([reference(rows) for rows in tf.split(x, 4)])  # noqa: E731
    found = verify(other, reference, {"x": COUNTS}, devices=devices[:1])
    assert found.verdict is Verdict.PASS, found
    wrong = verify(lambda x: other(x) + 1.0, reference, {"x": COUNTS}, devices=devices[:1])
    assert wrong.verdict is Verdict.FAIL
    assert "tolerance 0 (exact arithmetic)" in str(wrong), wrong


@pytest.mark.cases("int32")
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_constants_that_cancel_may_round_though_no_input_moves_them(devices: Devices, dtype: Any) -> None:
    x = np.arange(1, 13, dtype=dtype).reshape(6, 2)

    def terms(x: Any) -> Any:
        x = tf.cast(x, tf.float32)
        return x * 0.1, x * 0.2, x * -0.3

    def reference(x: Any) -> Any:
        one, two, three = terms(x)
        return (one + two) + three

    def other(x: Any, share: float = 1.0) -> Any:
        one, two, three = terms(x)
        return one + (two + three * share)

    given = devices[:1]
    assert np.any(reference(x).numpy() != other(x).numpy())
    found = verify(other, reference, {"x": x}, devices=given, gradients=dtype is np.float32)
    assert not found.findings, found
    assert "ill-conditioned" in found.reason, "the output is nothing but rounding errors"
    wrong = verify(lambda x: other(x, 1.0003), reference, {"x": x}, devices=given, gradients=dtype is np.float32)
    assert wrong.verdict is Verdict.FAIL, wrong


@pytest.mark.parametrize(("rows", "alike"), [(np.ones((8, 3)), True), (np.arange(24.0).reshape(8, 3), False)])
def test_a_pass_says_that_equal_rows_show_no_order(devices: Devices, rows: Any, alike: bool) -> None:
    parallel = make_parallel(tf.square, devices)
    # Integers are not changed to look again.
    found = verify(parallel, tf.square, {"x": rows.astype(np.int64)}, devices=devices, prove=False)
    assert found.verdict is Verdict.PASS, found
    assert ("All rows of the inputs are equal" in found.reason) is alike
