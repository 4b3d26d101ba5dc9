"""Results are held to the coarsest dtype that the program computes in, and to nothing coarser."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import tensorflow as tf

from harness import Devices, make_parallel, verify
from harness.judgement.exactness import is_exact
from harness.judgement.tolerance import Sensitivity, coarsest_epsilon, move
from harness.judgement.values import Judged, Subject, compare, typical_magnitude

_HALF = 2.0**-10


def _compare(found: list[float], expected: list[float], judged: Judged, change: float, scale: float = 0.0) -> None:
    have, want = np.array(found, np.float32), np.array(expected, np.float32)
    subject = Subject("gradient", "gradient for w", "eager")
    compare(
        judged, subject, have, want, exact=False, scale=lambda: scale,
        measure=lambda _: Sensitivity(np.full(want.shape, change), terms=4),
    )  # fmt: skip


def test_the_coarsest_dtype_of_the_arithmetic_decides() -> None:
    assert coarsest_epsilon(["float32", "float16", "int64"]) == _HALF
    assert coarsest_epsilon(["float64", "float32"]) == 2.0**-23
    assert coarsest_epsilon(["bfloat16", "float16"]) == 2.0**-7
    assert coarsest_epsilon(["int32", "string"]) == 0.0


def test_inputs_are_moved_as_far_as_the_arithmetic_can_tell_them_apart() -> None:
    array = np.ones(100, np.float32)
    fine = move(array, np.random.default_rng(0))
    coarse = move(array, np.random.default_rng(0), at_least=_HALF)
    assert 0 < np.abs(fine - array).max() <= 2.0**-23
    assert np.abs(coarse - array).max() == np.float32(_HALF)


def test_integers_beyond_float16_are_not_exact_in_it_though_the_result_is_float32() -> None:
    sources, results = [np.array([3.0], np.float32)], [np.array([200.0], np.float32)]
    assert is_exact(sources, results, ["MatMul", "Cast"])
    assert not is_exact(sources, results, ["MatMul", "Cast"], arithmetic=_HALF)


def test_a_float32_result_of_float16_arithmetic_may_be_a_float16_rounding_off() -> None:
    for arithmetic, findings in ((0.0, 1), (_HALF, 0)):
        judged = Judged(arithmetic=arithmetic)
        _compare([1.0 + _HALF, 1.0], [1.0, 1.0], judged, change=0.0)
        assert len(judged.findings) == findings


def test_a_float32_result_of_float16_arithmetic_may_not_be_off_by_more() -> None:
    judged = Judged(arithmetic=_HALF)
    _compare([1.1, 1.0], [1.0, 1.0], judged, change=0.0)
    assert [finding.kind for finding in judged.findings] == ["gradient"]


def test_rounding_error_about_zero_spoils_nothing_among_larger_gradients() -> None:
    judged = Judged()
    _compare([2e-9, -1e-9], [-1e-9, 1e-9], judged, change=1e-8, scale=1.0)
    assert judged.findings == []
    assert judged.undecided == []
    assert judged.compared == 0


def test_rounding_error_about_zero_alone_proves_nothing_and_says_so() -> None:
    judged = Judged()
    _compare([2e-9, -1e-9], [-1e-9, 1e-9], judged, change=1e-8)
    assert judged.findings == []
    assert len(judged.undecided) == 1


def test_the_typical_magnitude_is_that_of_the_finite_elements() -> None:
    assert typical_magnitude(np.array([3.0, -4.0, np.inf, np.nan], np.float32)) == np.sqrt(12.5)
    assert typical_magnitude(np.array([np.nan], np.float32)) == 0.0
    assert typical_magnitude(np.array([3 + 4j], np.complex64)) == 5.0


def test_float32_weights_do_not_excuse_arithmetic_in_float32_where_the_reference_is_float64(devices: Devices) -> None:
    weights = tf.Variable(np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32))

    def reference(x: Any) -> Any:
        return tf.tanh(tf.matmul(x, tf.cast(weights, tf.float64)))

    def truncated(x: Any) -> Any:
        return tf.cast(tf.tanh(tf.matmul(tf.cast(x, tf.float32), weights)), tf.float64)

    inputs = {"x": np.random.default_rng(1).normal(size=(10, 6))}
    found = verify(make_parallel(truncated, devices), reference, inputs, devices=devices)
    assert "computes in float32 instead of float64" in found.reason, found
    assert verify(make_parallel(reference, devices), reference, inputs, devices=devices).passed
    assert verify(make_parallel(truncated, devices), truncated, inputs, devices=devices).passed


def test_what_one_shard_rounds_is_told_once(devices: Devices) -> None:
    hidden, out = (tf.Variable(tf.random.stateless_normal([6, 6], (1, seed))) for seed in range(2))

    def program(x: Any, wrong: bool) -> Any:
        results = []
        for number, (device, part) in enumerate(zip(devices, tf.split(x, len(devices)), strict=True)):
            with tf.device(device.name):
                part = tf.nn.relu(tf.matmul(part, hidden))
                if wrong and number == len(devices) - 1:
                    part = tf.cast(tf.cast(part, tf.bfloat16), tf.float32)
                results.append(tf.nn.softmax(tf.matmul(part, out)))
        return tf.concat(results, 0)

    def reference(x: Any) -> Any:
        return tf.nn.softmax(tf.matmul(tf.nn.relu(tf.matmul(x, hidden)), out))

    inputs = {"x": tf.random.stateless_normal([12, 6], (3, 4))}
    found = verify(lambda x: program(x, True), reference, inputs, devices=devices)
    assert "computes in bfloat16 instead of float32" in found.reason
    assert re.search(
        r"that differs is MatMul: it reads the result of Cast \(.*\), but on .* it reads that of Relu \(", found.reason
    )
    assert verify(lambda x: program(x, False), reference, inputs, devices=devices).passed
