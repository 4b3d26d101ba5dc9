"""Results are held to the dtype that they depend on, and to nothing coarser."""

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


def _compare(
    found: list[float],
    expected: list[float],
    judged: Judged,
    change: float,
    scale: float = 0.0,
    rounded: float | None = None,
) -> None:
    have, want = np.array(found, np.float32), np.array(expected, np.float32)
    subject = Subject("gradient", "gradient for w", "eager")
    compare(
        judged, subject, have, want, exact=False, scale=lambda: scale,
        measure=lambda _: Sensitivity(np.full(want.shape, change), terms=4),
        rounded=None if rounded is None else lambda: Sensitivity(np.full(want.shape, rounded), terms=4),
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


def test_a_float32_result_may_be_a_float16_rounding_off_where_it_depends_on_float16_and_nowhere_else() -> None:
    for arithmetic, change, findings in ((0.0, 0.0, 1), (_HALF, _HALF, 0), (_HALF, 0.0, 1)):
        judged = Judged(arithmetic=arithmetic)
        _compare([1.0 + _HALF, 1.0], [1.0, 1.0], judged, change=0.0, rounded=change)
        assert len(judged.findings) == findings


def test_a_float32_result_of_float16_arithmetic_may_not_be_off_by_more() -> None:
    judged = Judged(arithmetic=_HALF)
    _compare([1.1, 1.0], [1.0, 1.0], judged, change=0.0, rounded=_HALF)
    assert [finding.kind for finding in judged.findings] == ["gradient"]


def test_an_error_and_its_bound_are_those_of_one_element() -> None:
    """Of 1,000 units with a bound of 12,000 and 1 unit with a bound of 12, the larger error is not above a bound."""
    judged = Judged()
    have, want = np.array([1.0 + 1e-4, 1e-3], np.float32), np.array([1.0, 1e-3 + 1e-9], np.float32)
    change = Sensitivity(np.array([1e-4, 1e-9]), terms=4)
    compare(judged, Subject("value", "output", "eager"), have, want, exact=False, measure=lambda _: change)
    [seen] = judged.comparisons
    assert judged.findings == []
    assert 0.0 < seen.largest_error <= seen.bound, seen


def _scaled_step(devices: Devices, *, skip: bool) -> tuple[Any, Any, Any]:
    """A step that is skipped where the gradient is too large; one product of the loss is computed in float16."""
    rng = np.random.default_rng(0)
    weights = tf.Variable(rng.normal(size=(4, 3)).astype(np.float32))

    def gradient(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            coarse = tf.cast(x @ weights, tf.float16) * tf.constant(1.5, tf.float16)
            loss = tf.reduce_mean(tf.square(tf.cast(coarse, tf.float32) - y))
        return tape.gradient(loss, weights)

    def update(grad: Any, kept: bool) -> Any:
        norm = tf.norm(grad)
        weights.assign_sub(tf.where(norm < 0.01, 0.1 * grad, tf.zeros_like(grad)) if kept else 0.1 * grad)
        return norm

    def parallel(x: Any, y: Any) -> Any:
        grads = []
        for device, part, goal in zip(devices[:2], tf.split(x, 2), tf.split(y, 2), strict=True):
            with tf.device(device.name):
                grads.append(gradient(part, goal))
        return update(tf.add_n(grads) / 2.0, skip)

    return weights, parallel, lambda x, y: update(gradient(x, y), True)


def test_half_precision_does_not_excuse_a_step_in_float32_that_should_be_skipped(devices: Devices) -> None:
    rng = np.random.default_rng(1)
    inputs = {"x": 0.3 * rng.normal(size=(8, 4)).astype(np.float32), "y": rng.normal(size=(8, 3)).astype(np.float32)}
    for skip in (True, False):
        weights, parallel, reference = _scaled_step(devices, skip=skip)
        found = verify(parallel, reference, inputs, devices=devices[:2], variables=[weights], modes=("eager",))
        assert found.passed is skip, found
        assert not skip or all(each.largest_error <= each.bound for each in found.comparisons)


def test_towers_that_round_to_float16_in_other_places_pass(devices: Devices) -> None:
    """Casts alone, without an op that computes in float16; each tower has an order of summation of its own."""
    weights = tf.Variable(np.random.default_rng(0).normal(scale=0.1, size=(64, 192)).astype(np.float32))

    def reference(x: Any) -> Any:
        return tf.tanh(tf.cast(tf.cast(x @ weights, tf.float16), tf.float32) * 3.0)

    def parallel(x: Any) -> Any:
        rows = []
        for device, part in zip(devices[:2], tf.split(x, 2), strict=True):
            with tf.device(device.name):
                product = part[:, :7] @ weights[:7] + part[:, 7:] @ weights[7:]
                rows.append(tf.tanh(tf.cast(tf.cast(product, tf.float16), tf.float32) * 3.0))
        return tf.concat(rows, 0)

    inputs = {"x": np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32)}
    found = verify(parallel, reference, inputs, devices=devices[:2], modes=("eager",))
    assert found.passed, found
    assert any(each.largest_error > 1e-5 for each in found.comparisons), "some number was rounded the other way"


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
