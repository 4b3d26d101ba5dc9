"""Variables that nobody names: compared where both programs use them, or carry them and the reference changes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, Verification, make_parallel, verify

X = np.random.default_rng(5).normal(size=(8, 3)).astype(np.float32)


def _verified(devices: Devices, parallel: Callable[..., Any], reference: Callable[..., Any]) -> Verification:
    return verify(parallel, reference, {"x": X}, devices=devices[:2])


def test_a_counter_that_each_shard_moves_on_is_found(devices: Devices) -> None:
    calls = tf.Variable(0, trainable=False)

    def counted(x: Any) -> Any:
        calls.assign_add(1)
        return tf.tanh(x)

    found = _verified(devices, make_parallel(counted, devices[:2]), counted)
    assert {(finding.kind, "after the call" in finding.where) for finding in found.findings} == {("value", True)}, found


def test_a_variable_that_is_updated_alike_passes(devices: Devices) -> None:
    total = tf.Variable(tf.zeros([3]), trainable=False)
    split = make_parallel(tf.tanh, devices[:2])

    def added(fn: Callable[..., Any]) -> Callable[..., Any]:
        def program(x: Any) -> Any:
            total.assign_add(tf.reduce_sum(x, axis=0))
            return fn(x=x)

        return program

    found = _verified(devices, added(split), added(lambda x: tf.tanh(x)))
    assert found.verdict is Verdict.PASS, found


def test_copies_that_the_reference_leaves_alone_are_the_programs_own_affair(devices: Devices) -> None:
    copies = []
    for device in devices[:2]:
        with tf.device(device.name):
            copies.append(tf.Variable(tf.ones([3])))

    def parallel(x: Any) -> Any:
        parts = []
        for device, part, copy in zip(devices[:2], tf.split(x, 2), copies, strict=True):
            with tf.device(device.name):
                parts.append(part * copy)
        for device, copy in zip(devices[:2], copies, strict=True):
            with tf.device(device.name):
                copy.assign(copy * 0.5)
        return tf.concat(parts, axis=0)

    def reference(x: Any) -> Any:
        result = x * copies[0]
        copies[0].assign(copies[0] * 0.5)
        return result

    found = _verified(devices, parallel, reference)
    assert found.verdict is Verdict.PASS, found


@pytest.mark.parametrize("too_many", [True, False])
def test_a_variable_that_the_reference_only_reads_is_not_to_be_updated(devices: Devices, too_many: bool) -> None:
    frozen, trained = tf.Variable(X[:3], name="frozen", trainable=False), tf.Variable(X[0], name="trained")

    def loss(x: Any) -> Any:
        return tf.reduce_sum(tf.tanh(x @ frozen) * trained)

    def step(x: Any, variables: list[Any]) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(variables)
            value = loss(x)
        for variable, gradient in zip(variables, tape.gradient(value, variables), strict=True):
            variable.assign_sub(0.1 * gradient)
        return value

    def parallel(x: Any) -> Any:
        return step(x, [trained, frozen] if too_many else [trained])

    def reference(x: Any) -> Any:
        return step(x, [trained])

    found = _verified(devices[:1], parallel, reference)
    assert found.verdict is (Verdict.FAIL if too_many else Verdict.PASS), found
    if too_many:
        assert "frozen is updated, but the reference does not update it (tests/judgement/test_unnamed" in found.reason


def test_what_follows_from_an_update_too_many_is_not_another_cause(devices: Devices) -> None:
    frozen = tf.Variable(X[:3], name="frozen", trainable=False)

    def parallel(x: Any) -> Any:
        frozen.assign_add(tf.ones([3, 3]))
        return tf.tanh(x @ frozen)

    found = _verified(devices[:1], parallel, lambda x: tf.tanh(x @ frozen))
    assert found.reason.startswith("Variable frozen is updated, but the reference does not update it"), found


def test_a_generator_that_is_asked_by_each_shard_may_have_moved_on_further(devices: Devices) -> None:
    generator = tf.random.Generator.from_seed(1)

    def shifted(x: Any) -> Any:
        return tf.tanh(x) + 0.0 * generator.uniform([])

    found = _verified(devices, make_parallel(shifted, devices[:2]), shifted)
    assert not [finding for finding in found.findings if "after the call" in finding.where], found


def _doubled(*variables: Any) -> Callable[[float], Callable[..., Any]]:
    def scaled(factor: float) -> Callable[..., Any]:
        def program(x: Any) -> Any:
            for number, variable in enumerate(variables):
                variable.assign_add(factor * x[number])
            return tf.tanh(x)

        return program

    return scaled


def _wheres(found: Verification) -> str:
    return "; ".join(line for finding in found.findings for line in (finding.where, *finding.follows))


def test_variables_that_share_a_name_are_numbered(devices: Devices) -> None:
    first, second = (tf.Variable(X[row]) for row in range(2))
    scaled = _doubled(first, second)
    for named, names in (
        ([first, second], ("variable Variable (variables[0])", "variable Variable (variables[1])")),
        ([], ("variable Variable (number 1 of this name)", "variable Variable (number 2 of this name)")),
    ):
        found = verify(scaled(2.0), scaled(1.0), {"x": X}, devices=devices[:1], variables=named)
        assert all(f"{name} after the call (eager)" in _wheres(found) for name in names), found
        assert all(name in f"v{found.reason[1:]}" for name in names), found
        again = verify(scaled(2.0), scaled(2.0), {"x": X}, devices=devices[:1], variables=named)
        assert again.verdict is Verdict.PASS, again


def test_names_that_are_given_are_kept(devices: Devices) -> None:
    mean, kernel = tf.Variable(X[0], name="mean"), tf.keras.Variable(X[1], name="kernel")
    scaled = _doubled(mean, kernel)
    found = verify(scaled(2.0), scaled(1.0), {"x": X}, devices=devices[:1], variables=[mean, kernel, kernel.value])
    assert {name for name in ("mean", "kernel") if f"variable {name} after the call" in _wheres(found)} == {
        "mean",
        "kernel",
    }, found
