from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import (
    Device,
    Devices,
    DevicesUnavailable,
    UsageError,
    Verdict,
    Verification,
    VerificationError,
    assert_parallel,
    make_parallel,
    verify,
)

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(10, 3)).astype(np.float32)


def dense(x: Any) -> Any:
    return tf.tanh(x * 1.7) + 0.3


def kinds(verification: Any) -> set[str]:
    return {finding.kind for finding in verification.findings}


def test_a_right_program_passes_and_says_what_was_exercised(devices: Devices) -> None:
    weights = tf.Variable(RANDOM.normal(size=(3, 5)).astype(np.float32))
    fn = lambda x: tf.tanh(tf.matmul(x, weights))  # noqa: E731
    found = verify(make_parallel(fn, devices), fn, {"x": X}, devices=devices, variables=[weights])
    assert found.verdict is Verdict.PASS
    assert found.passed
    assert found.findings == ()
    assert found.exercised.programs == 2
    assert found.exercised.values == 2 * 50
    assert found.exercised.gradients == 2 * (30 + 15)
    assert found.exercised.gradient_ops >= 2 * 3 * 4
    assert found.exercised.devices == devices.names
    assert set(found.traces) == {"eager", "graph"}


def test_a_verification_has_no_truth_value(devices: Devices) -> None:
    with pytest.raises(TypeError, match=r"use \.passed"):
        bool(verify(make_parallel(dense, devices), dense, {"x": X}, devices=devices, modes=("eager",)))


@pytest.mark.cases(1)
@pytest.mark.parametrize("error", [1e-3, 1e-4, 1e-5])
def test_a_wrong_value_is_found_at_its_element(devices: Devices, error: float) -> None:
    right = make_parallel(dense, devices)

    def wrong(x: Any) -> Any:
        return tf.tensor_scatter_nd_add(right(x=x), [[7, 1]], [error])

    found = verify(wrong, dense, {"x": X}, devices=devices)
    assert kinds(found) == {"value"}
    assert "worst at [7, 1]" in found.findings[0].message


def test_another_order_of_summation_is_no_finding(devices: Devices) -> None:
    weights = tf.Variable(RANDOM.normal(size=(300, 5)).astype(np.float32))
    order = RANDOM.permutation(300)

    def reference(x: Any) -> Any:
        return tf.matmul(x, weights)

    def other_order(x: Any) -> Any:
        return tf.matmul(tf.gather(x, order, axis=1), tf.gather(tf.convert_to_tensor(weights), order))

    x = RANDOM.normal(size=(10, 300)).astype(np.float32)
    assert np.any(reference(x).numpy() != other_order(tf.constant(x)).numpy())
    found = verify(make_parallel(other_order, devices), reference, {"x": x}, devices=devices, variables=[weights])
    assert found.findings == ()
    assert found.passed


def test_exact_arithmetic_is_compared_to_the_last_bit(devices: Devices) -> None:
    weights = tf.Variable(RANDOM.integers(-3, 4, size=(3, 5)).astype(np.float32))
    x = RANDOM.integers(1, 5, size=(10, 3)).astype(np.float32)
    fn = lambda x: tf.matmul(x, weights) + 16.0  # noqa: E731
    right = make_parallel(fn, devices)
    found = verify(right, fn, {"x": x}, devices=devices, variables=[weights])
    assert found.passed
    assert {comparison.rule for comparison in found.comparisons} == {"exact arithmetic"}

    def one_ulp_off(x: Any) -> Any:
        return tf.tensor_scatter_nd_add(right(x=x), [[0, 0]], [2e-6])

    assert kinds(verify(one_ulp_off, fn, {"x": x}, devices=devices, variables=[weights])) == {"value"}


def test_arithmetic_that_is_not_exact_is_not_taken_for_exact(devices: Devices) -> None:
    found = verify(make_parallel(dense, devices), dense, {"x": X}, devices=devices)
    assert {comparison.rule for comparison in found.comparisons} == {"8 units in the last place"}


@pytest.mark.cases("inf")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_no_number_where_the_reference_has_one_is_found(devices: Devices, value: float) -> None:
    right = make_parallel(dense, devices)
    wrong = lambda x: tf.tensor_scatter_nd_update(right(x=x), [[7, 1]], [value])  # noqa: E731
    found = verify(wrong, dense, {"x": X}, devices=devices)
    assert kinds(found) == {"value"}


def test_a_reference_that_is_nan_proves_nothing(devices: Devices) -> None:
    fn = lambda x: tf.math.log(x)  # noqa: E731
    found = verify(make_parallel(fn, devices), fn, {"x": -np.abs(X)}, devices=devices)
    assert found.verdict is Verdict.UNKNOWN
    assert not found.passed
    assert "NaN at 30 of 30 elements" in found.reason


def test_infinities_that_both_have_are_equal(devices: Devices) -> None:
    x = X.copy()
    x[3, 1] = np.inf
    fn = lambda x: x * 2.0  # noqa: E731
    assert verify(make_parallel(fn, devices), fn, {"x": x}, devices=devices).passed


def test_shape_dtype_and_structure_are_compared(devices: Devices) -> None:
    right = make_parallel(dense, devices)
    cases = {
        "shape": lambda x: tf.transpose(right(x=x)),
        "dtype": lambda x: tf.cast(right(x=x), tf.float64),
        "structure": lambda x: (right(x=x), right(x=x)),
    }
    for kind, wrong in cases.items():
        assert kinds(verify(wrong, dense, {"x": X}, devices=devices, modes=("eager",))) == {kind}


def test_integers_are_compared_for_equality(devices: Devices) -> None:
    fn = lambda x: tf.argmax(x, axis=1)  # noqa: E731
    right = make_parallel(fn, devices)
    assert verify(right, fn, {"x": X}, devices=devices).passed
    wrong = lambda x: tf.reverse(right(x=x), [0])  # noqa: E731
    assert kinds(verify(wrong, fn, {"x": X}, devices=devices)) == {"value"}


def test_a_missing_gradient_is_found(devices: Devices) -> None:
    weights = tf.Variable(RANDOM.normal(size=(3, 5)).astype(np.float32))
    fn = lambda x: tf.tanh(tf.matmul(x, weights))  # noqa: E731
    stale = tf.constant(weights.numpy())
    wrong = make_parallel(lambda x: tf.tanh(tf.matmul(x, stale)), devices)
    found = verify(wrong, fn, {"x": X}, devices=devices, variables=[weights])
    assert kinds(found) == {"missing-gradient"}
    assert "gradient for variable" in found.findings[0].where


def test_gradients_that_do_not_exist_are_unknown_when_asked_for(devices: Devices) -> None:
    fn = lambda x: tf.argmax(x, axis=1)  # noqa: E731
    found = verify(make_parallel(fn, devices), fn, {"x": X}, devices=devices, gradients=True)
    assert found.verdict is Verdict.UNKNOWN


@pytest.mark.cases("True")
@pytest.mark.parametrize("wrong", [False, True])
def test_variables_without_gradients_are_compared_by_their_values(devices: Devices, wrong: bool) -> None:
    hits, rows = tf.Variable(0), tf.Variable(0.0)

    def reference(x: Any) -> Any:
        hits.assign_add(tf.reduce_sum(tf.cast(x[:, 0] > 0, tf.int32)))
        rows.assign_add(8.0)
        return tf.argmax(x, axis=1)

    def counted(x: Any) -> Any:
        counts, best = [], []
        for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                counts.append(tf.reduce_sum(tf.cast(part[:, 0] * 1.0 > 0, tf.int32)))
                best.append(tf.argmax(part, axis=1))
        hits.assign_add(counts[0] if wrong else tf.add_n(counts))
        rows.assign_add(8.0)
        return tf.concat(best, axis=0)

    x = np.random.default_rng(2).normal(size=(8, 3)).astype(np.float32)
    found = verify(counted, reference, {"x": x}, devices=devices, variables=[hits, rows])
    assert found.verdict is (Verdict.FAIL if wrong else Verdict.PASS), found


def test_backward_ops_on_the_wrong_device_are_found_in_both_modes(devices: Devices) -> None:
    weights = tf.Variable(RANDOM.normal(size=(3, 5)).astype(np.float32))
    fn = lambda x: tf.tanh(tf.matmul(x, weights))  # noqa: E731
    wrong = make_parallel(fn, devices, colocate_gradients=False)
    found = verify(wrong, fn, {"x": X}, devices=devices, variables=[weights])
    assert kinds(found) == {"gradient-placement"}
    assert {mode for finding in found.findings for mode in finding.mode.split(", ")} == {"eager", "graph"}
    [finding] = found.findings
    assert all(device.parsed.short in finding.expected for device in devices[1:]), finding


def test_a_program_that_uses_one_device_alone_is_found(devices: Devices) -> None:
    found = verify(dense, dense, {"x": X}, devices=devices)
    assert kinds(found) == {"unused-device"}
    [finding] = found.findings
    assert all(device.parsed.short in finding.where for device in devices[1:]), finding


def test_fewer_rows_than_devices_leave_devices_out_without_a_finding(devices: Devices) -> None:
    for rows in (0, 1, 2):
        found = verify(make_parallel(dense, devices), dense, {"x": X[:rows]}, devices=devices)
        assert found.findings == (), rows
        assert found.verdict is Verdict.PASS


def test_random_programs_prove_nothing_and_one_with_a_fixed_reference_is_found(devices: Devices) -> None:
    fn = lambda x: x + tf.random.normal(tf.shape(x))  # noqa: E731
    found = verify(make_parallel(fn, devices), fn, {"x": X}, devices=devices)
    assert found.verdict is Verdict.UNKNOWN
    assert "RandomStandardNormal" in found.reason
    found = verify(make_parallel(fn, devices), lambda x: tf.identity(x), {"x": X}, devices=devices)
    assert kinds(found) == {"nondeterminism"}
    assert "Random numbers are drawn without a seed" in found.reason


def test_a_program_that_raises_is_a_finding_and_a_reference_that_raises_is_unknown(devices: Devices) -> None:
    def wrong(x: Any) -> Any:
        raise ValueError("no such thing")

    found = verify(wrong, dense, {"x": X}, devices=devices)
    assert kinds(found) == {"error"}
    assert "ValueError: no such thing" in found.findings[0].message
    found = verify(make_parallel(dense, devices), wrong, {"x": X}, devices=devices)
    assert found.verdict is Verdict.UNKNOWN
    assert "the reference raised ValueError: no such thing" in found.reason


def test_an_oracle_sees_a_fault_that_both_sides_share(devices: Devices) -> None:
    squares = lambda x: tf.matmul(x, tf.matmul(x, x, transpose_a=True))  # noqa: E731
    assert verify(squares, squares, {"x": X}, devices=devices[:1], oracle=lambda x: x @ (x.T @ x)).passed
    found = verify(squares, squares, {"x": X}, devices=devices[:1], oracle=lambda x: x @ (x.T @ x) * 1.001)
    assert kinds(found) == {"value"}
    assert all("the oracle" in finding.message for finding in found.findings)


def test_training_steps_are_compared_by_the_state_that_they_leave(devices: Devices) -> None:
    weights = tf.Variable(RANDOM.normal(size=(3, 1)).astype(np.float32))
    start = weights.numpy()
    steps = tf.Variable(0, trainable=False)

    def step(predict: Callable[..., Any], times: int) -> Callable[..., Any]:
        def run(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((predict(x=x) - y) ** 2)
            weights.assign_sub(0.1 * tape.gradient(loss, weights))
            steps.assign_add(times)
            return loss

        return run

    fn = lambda x: tf.matmul(x, weights)  # noqa: E731
    parallel = make_parallel(fn, devices)
    inputs = {"x": X, "y": RANDOM.normal(size=(10, 1)).astype(np.float32)}
    arguments: dict[str, Any] = {"devices": devices, "variables": [weights, steps], "gradients": False}
    found = verify(step(parallel, 1), step(fn, 1), inputs, **arguments)
    assert found.findings == ()
    assert found.exercised.gradient_ops > 0
    assert any("after the call" in comparison.where for comparison in found.comparisons)
    wrong = verify(step(parallel, 4), step(fn, 1), inputs, **arguments)
    assert kinds(wrong) == {"value"}
    assert "after the call" in wrong.findings[0].where
    np.testing.assert_array_equal(weights.numpy(), start)
    assert steps.numpy() == 0


@pytest.mark.parametrize("mode", ["eager", "graph", "dynamic"])
def test_a_tower_may_join_its_result_with_its_part_of_the_batch(devices: Devices, mode: str) -> None:
    fn = lambda x, y: tf.stack([tf.tanh(x), y], axis=1)  # noqa: E731
    for some in (devices, devices[1:2], devices[2:]):
        found = verify(make_parallel(fn, some), fn, {"x": X, "y": X + 1.0}, devices=some, modes=(mode,))
        assert found.findings == ()
        assert found.passed


@pytest.mark.parametrize("colocate", [True, False])
def test_a_training_step_that_returns_its_gradients_is_judged_by_its_own_backward_ops(
    devices: Devices, colocate: bool
) -> None:
    weights = tf.Variable(RANDOM.normal(size=(3, 5)).astype(np.float32))
    fn = lambda x: tf.tanh(tf.matmul(x, weights))  # noqa: E731

    def step(predict: Callable[..., Any]) -> Callable[..., Any]:
        def run(x: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(predict(x=x) ** 2)
            return loss, tape.gradient(loss, weights)

        return run

    parallel = step(make_parallel(fn, devices, colocate_gradients=colocate))
    found = verify(parallel, step(fn), {"x": X}, devices=devices, variables=[weights])
    assert kinds(found) == (set() if colocate else {"gradient-placement"})
    assert found.exercised.gradient_ops > 0


def test_assert_parallel_has_the_signature_of_verify() -> None:
    assert inspect.signature(assert_parallel) == inspect.signature(verify)


def test_assert_parallel_raises_with_the_findings_in_ten_lines_at_most(devices: Devices) -> None:
    assert_parallel(make_parallel(dense, devices), dense, {"x": X}, devices=devices)
    with pytest.raises(VerificationError) as caught:
        assert_parallel(lambda x: dense(x) * 2.0, dense, {"x": X}, devices=devices[:2], seed=3)
    text = str(caught.value)
    assert len(caught.value.findings) == 2
    assert text.count("\n  [H104 value, C") == 1
    assert text.count("\n  [H204 unused-device]") == 1
    assert len(text.splitlines()) <= 10, text
    found = caught.value.verification
    assert isinstance(found, Verification)
    assert repr(found) == f"<Verification FAIL: {found.reason} ({found.exercised})>"
    assert "<b " in found._repr_html_()
    assert len(found.lines(everything=True)) > len(found.lines())
    assert isinstance(caught.value, AssertionError)


def test_nothing_traced_is_unknown(devices: Devices) -> None:
    same = lambda x: x  # noqa: E731
    found = verify(same, same, {"x": X}, devices=devices)
    assert found.verdict is Verdict.UNKNOWN
    assert "no traced op computes" in found.reason


def test_a_program_that_only_moves_data_is_proven_by_what_it_moves(devices: Devices) -> None:
    flat = lambda x: tf.reshape(x, [-1, 1, 3])  # noqa: E731
    found = verify(make_parallel(flat, devices), flat, {"x": X}, devices=devices)
    assert found.verdict is Verdict.PASS
    assert found.exercised.ops >= 8


def test_bad_arguments_are_refused_in_one_line(devices: Devices) -> None:
    arguments: dict[str, Any] = {"devices": devices}
    calls: dict[str, Callable[[], Any]] = {
        "modes=": lambda: verify(dense, dense, {"x": X}, modes=("fast",), **arguments),
        "modes='eager'": lambda: verify(dense, dense, {"x": X}, modes="eager", **arguments),
        "modes=3": lambda: verify(dense, dense, {"x": X}, modes=3, **arguments),  # type: ignore[arg-type]
        "seed='a'": lambda: verify(dense, dense, {"x": X}, seed="a", **arguments),  # type: ignore[arg-type]
        "gradients='yes'; accepted: True": lambda: verify(dense, dense, {"x": X}, gradients="yes", **arguments),  # type: ignore[arg-type]
        "exact=1; accepted: True": lambda: verify(dense, dense, {"x": X}, exact=1, **arguments),  # type: ignore[arg-type]
        "save=3; accepted: the path": lambda: verify(dense, dense, {"x": X}, save=3, **arguments),  # type: ignore[arg-type]
        "accepted: the path of a folder": lambda: verify(dense, dense, {"x": X}, save=__file__, **arguments),
        "seed=-1": lambda: verify(dense, dense, {"x": X}, seed=-1, **arguments),
        "accept=3": lambda: verify(dense, dense, {"x": X}, accept=3, **arguments),  # type: ignore[arg-type]
        "variables= contains an object of type str": lambda: verify(dense, dense, {"x": X}, variables="w", **arguments),
        "is not callable": lambda: verify(3, dense, {"x": X}, **arguments),  # type: ignore[arg-type]
        "a mapping of argument names": lambda: verify(dense, dense, [X], **arguments),  # type: ignore[arg-type]
        r"devices=\(\) is empty": lambda: verify(dense, dense, {"x": X}, devices=[]),
        "devices='cpu:2'; accepted: what harness.configure returned": lambda: verify(
            dense,
            dense,
            {"x": X},
            devices="cpu:2",  # type: ignore[arg-type]
        ),
        "inputs= is of type ndarray; accepted: a mapping": lambda: verify(dense, dense, X, **arguments),  # type: ignore[arg-type]
        "oracle=3 is not callable": lambda: verify(
            dense,
            dense,
            {"x": X},
            devices=devices,
            oracle=3,  # type: ignore[arg-type]
        ),
        "variables=3; accepted: a sequence of tf.Variable": lambda: verify(
            dense,
            dense,
            {"x": X},
            devices=devices,
            variables=3,  # type: ignore[arg-type]
        ),
    }
    for message, call in calls.items():
        with pytest.raises(UsageError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_devices_that_are_not_there_are_an_error(devices: Devices) -> None:
    ghost = Device("/job:localhost/replica:0/task:0/device:CPU:77", "logical-cpu", "/physical_device:CPU:0")
    with pytest.raises(DevicesUnavailable, match="CPU:77"):
        verify(dense, dense, {"x": X}, devices=[*devices, ghost])


def test_the_unknown_batch_size_is_a_mode_of_its_own(devices: Devices) -> None:
    found = verify(make_parallel(dense, devices), dense, {"x": X}, devices=devices, modes=("dynamic",), gradients=True)
    assert found.passed
    assert set(found.traces) == {"dynamic"}

    def fixed_split(x: Any) -> Any:
        return tf.concat([dense(part) for part in tf.split(x, x.shape[0] // 5)], axis=0)

    found = verify(fixed_split, dense, {"x": X}, devices=devices[:1], modes=("dynamic",))
    assert kinds(found) == {"error"}
