"""Sums of terms that cancel, and results that rounding flips: no false alarm, and a small bias is still found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, colocate_gradients, verify


@pytest.mark.parametrize("seeds", [range(4), range(4, 12), range(12, 20)], ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_the_gradient_of_a_bias_under_small_weights_is_no_false_alarm_and_a_wrong_one_is_found(
    devices: Devices, seeds: range
) -> None:
    for seed in seeds:
        random = np.random.default_rng(seed)
        x = random.normal(size=(64, 16)).astype(np.float32)
        w = tf.Variable(0.02 * random.normal(size=(16, 8)).astype(np.float32), name="w")
        b = tf.Variable(tf.zeros([8]), name="b")

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def once_too_often(bias: Any) -> Any:
            return tf.identity(bias), lambda upstream: upstream * 1.01

        def layer(x: Any, bias: Any, w: Any = w) -> Any:
            return tf.tanh(x @ w + bias)

        def towers(x: Any, wrong: bool, b: Any = b, layer: Any = layer, scaled: Any = once_too_often) -> Any:
            parts = []
            for number, (device, part) in enumerate(zip(devices, tf.split(x, 4), strict=True)):
                with tf.device(device.name):
                    parts.append(layer(part, scaled(b) if wrong and number == 1 else b.read_value()))
            return tf.concat(parts, axis=0)

        for wrong in (False, True) if seed == seeds[0] else (False,):
            found = verify(
                colocate_gradients(lambda x, wrong=wrong, towers=towers: towers(x, wrong)),
                lambda x, b=b, layer=layer: layer(x, b),
                {"x": x},
                devices=devices,
                variables=[w, b],
                modes=("eager", "graph") if seed == seeds[0] else ("graph",),
                seed=seed,
            )
            seen = {(each.kind, each.mode) for each in found.findings}
            assert seen == ({("gradient", "eager, graph")} if wrong else set()), (seed, str(found))


def test_a_bias_of_a_thousandth_is_found_where_terms_cancel(devices: Devices) -> None:
    random = np.random.default_rng(3)
    x = random.normal(size=(64, 16)).astype(np.float32)
    w = tf.Variable(0.02 * random.normal(size=(16, 8)).astype(np.float32), name="w")
    reference = lambda x: tf.tanh(x @ w)  # noqa: E731
    wrong: Any = lambda x: tf.tanh(x @ w) * 1.001  # noqa: E731
    found = verify(wrong, reference, {"x": x}, devices=devices[:1], variables=[w])
    assert "1.001 times" in found.reason, found


def test_a_whole_number_that_rounding_flips_is_no_finding_but_another_one_is(devices: Devices) -> None:
    # Sums of 1,000 terms that are whole numbers but for rounding: floor() goes either way.
    random = np.random.default_rng(0)
    x = random.normal(size=(16, 999)).astype(np.float32)
    x = np.concatenate([x, (3.0 - x.astype(np.float64).sum(axis=1, keepdims=True)).astype(np.float32)], axis=1)
    order = random.permutation(1000)
    reference: Any = lambda x: tf.cast(tf.floor(tf.reduce_sum(x, axis=1)), tf.int32)  # noqa: E731
    other: Any = lambda x: reference(tf.gather(x, order, axis=1))  # noqa: E731
    assert np.any(reference(x).numpy() != other(tf.constant(x)).numpy())
    found = verify(other, reference, {"x": x}, devices=devices[:1])
    assert not found.findings, found
    wrong = verify(lambda x: other(x) + 2, reference, {"x": x}, devices=devices[:1])
    assert {each.kind for each in wrong.findings} == {"value"}, wrong


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_a_sum_that_is_rounded_to_quarters_may_flip_where_it_is_between_two_and_others_are_judged(
    devices: Devices, factor: float
) -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=(32, 999)).astype(np.float32)
    # The first two rows are between two quarters but for rounding, the others are near one.
    wanted_sums = np.array([3.125] * 2 + [3.0] * 30)[:, np.newaxis]
    x = np.concatenate([x, (wanted_sums - x.astype(np.float64).sum(axis=1, keepdims=True)).astype(np.float32)], axis=1)
    order = random.permutation(1000)
    reference: Any = lambda x: tf.round(4.0 * tf.reduce_sum(x, axis=1)) / 4.0  # noqa: E731
    other: Any = lambda x: reference(tf.gather(x, order, axis=1)) * factor  # noqa: E731
    assert np.any(reference(x).numpy() != reference(tf.gather(x, order, axis=1)).numpy())
    found = verify(other, reference, {"x": x}, devices=devices[:1])
    wanted = set() if factor == 1.0 else {("value", "eager, graph")}
    assert {(each.kind, each.mode) for each in found.findings} == wanted, found


@pytest.mark.cases("3.0-UNKNOWN")
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.001, Verdict.UNKNOWN), (3.0, Verdict.UNKNOWN)])
def test_a_gradient_with_a_step_where_the_variable_stands_is_judged_by_rounding_alone(
    devices: Devices, factor: float, verdict: Verdict
) -> None:
    # The gradient of xlogy for its first argument is log(x), and 0 where that is 0: moving the variable moves it far.
    x = np.abs(np.random.default_rng(3).normal(size=(64, 3))).astype(np.float32) + np.float32(0.1)
    weight = tf.Variable([1.0, 1.0, 1.0], name="weight")

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def scaled(weight: Any) -> Any:
        return tf.identity(weight), lambda upstream: upstream * factor

    def layer(x: Any, weight: Any) -> Any:
        return tf.math.xlogy(weight - 1.0, x) + weight * x

    def towers(x: Any) -> Any:
        parts = []
        for device, part in zip(devices, tf.split(x, 4), strict=True):
            with tf.device(device.name):
                parts.append(layer(part, scaled(weight)))
        return tf.concat(parts, 0)

    found = verify(
        colocate_gradients(towers), lambda x: layer(x, weight), {"x": x}, devices=devices, variables=[weight]
    )
    assert found.verdict is verdict, str(found)
    assert not found.findings, str(found)


def _steps(devices: Devices, weight: Any, bias: Any, factor: float = 1.0) -> tuple[Any, Any]:
    """A training step in towers and in one, which return the loss and the gradients; that of ``bias`` is 0."""

    def loss(x: Any) -> Any:
        made = tf.matmul(x, weight) + bias
        return tf.reduce_sum(tf.square(tf.tanh(made - tf.reduce_mean(made, axis=1, keepdims=True))))

    def towers(x: Any) -> Any:
        losses = []
        with tf.GradientTape() as tape:
            for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
                with tf.device(device.name):
                    losses.append(loss(part))
            total = tf.add_n(losses)
        gradients = tape.gradient(total, [weight, bias])
        return total, gradients[0] * factor, gradients[1]

    def single(x: Any) -> Any:
        with tf.GradientTape() as tape:
            total = loss(x)
        return (total, *tape.gradient(total, [weight, bias]))

    return towers, single


@pytest.mark.cases(1)
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.01, Verdict.FAIL)])
def test_a_gradient_that_a_step_returns_may_be_nothing_but_rounding_error(
    devices: Devices, factor: float, verdict: Verdict
) -> None:
    random = np.random.default_rng(0)
    weight = tf.Variable(random.standard_normal((6, 5)).astype(np.float32))
    bias = tf.Variable(0.3)
    rows = 8 * len(devices)
    with colocate_gradients():
        towers, single = _steps(devices, weight, bias, factor)
        inputs = {"x": random.standard_normal((rows, 6)).astype(np.float32)}
        found = verify(towers, single, inputs, devices=devices, variables=[weight, bias])
    assert found.verdict is verdict, str(found)
    assert {finding.kind for finding in found.findings} == (set() if verdict is Verdict.PASS else {"value"})


@pytest.mark.cases("1.0-PASS")
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.01, Verdict.FAIL)])
def test_a_variable_that_a_step_moves_by_nothing_but_rounding_error_is_judged_beside_the_others(
    devices: Devices, factor: float, verdict: Verdict
) -> None:
    random = np.random.default_rng(0)
    rows = 8 * len(devices)
    inputs = {"x": random.standard_normal((rows, 6)).astype(np.float32)}
    weight = tf.Variable(random.standard_normal((6, 5)).astype(np.float32))
    bias = tf.Variable(0.0)
    towers, single = _steps(devices, weight, bias, factor)

    def updating(step: Any) -> Any:
        def updated(x: Any) -> Any:
            total, *gradients = step(x)
            for variable, gradient in zip([weight, bias], gradients, strict=True):
                variable.assign_sub(0.1 * gradient)
            return total

        return updated

    with colocate_gradients():
        found = verify(updating(towers), updating(single), inputs, devices=devices, variables=[weight, bias])
    assert found.verdict is verdict, str(found)
    assert {finding.kind for finding in found.findings} == (set() if verdict is Verdict.PASS else {"value"})
