"""``verify`` without a reference: the single-device run is the program itself, all of it on its first device."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness.judgement.verify as of_verify
from harness import Devices, UsageError, Verdict, colocate_gradients, trace, verify
from harness.parallel.one_device import on_first_device

X = np.random.default_rng(0).normal(size=(8, 6)).astype("float32")


def step_of(devices: Devices, where: Any = lambda number: number) -> Any:
    """A training step of towers whose batch normalization, an inner tf.function, is per tower on purpose."""
    w = tf.Variable(tf.random.stateless_normal((6, 6), (1, 2)))

    @tf.function  # type: ignore[untyped-decorator]
    def normalized(x: Any) -> Any:
        return (x - tf.reduce_mean(x, axis=0)) / (1.0 + tf.math.reduce_std(x, axis=0))

    def step(x: Any) -> Any:
        losses = []
        with tf.GradientTape() as tape:
            for number, part in enumerate(tf.split(x, len(devices))):
                with tf.device(devices[where(number)].name):
                    losses.append(tf.reduce_mean(normalized(tf.tanh(part @ w)) ** 2))
            loss = tf.add_n(losses) / len(losses)
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    return step


def test_placement_is_judged_without_a_second_program(devices: Devices) -> None:
    right = verify(colocate_gradients(step_of(devices)), inputs={"x": X}, devices=devices)
    assert right.verdict is Verdict.PASS, str(right)
    assert f"matches its own run on {devices[0].parsed.short}" in right.reason
    assert right.exercised.devices == devices.names

    for function in (lambda step: step, tf.function):
        backward = verify(function(step_of(devices)), inputs={"x": X}, devices=devices)
        assert {finding.kind for finding in backward.findings} == {"gradient-placement"}, str(backward)
    idle = verify(colocate_gradients(step_of(devices, lambda _: 0)), inputs={"x": X}, devices=devices)
    assert "unused-device" in {finding.kind for finding in idle.findings}


def test_the_run_on_the_first_device_leaves_the_program_as_it_was(devices: Devices) -> None:
    step = tf.function(step_of(devices))
    used = [
        {op.device for op in trace(fn, X).ops if op.type == "Tanh"} for fn in (step, on_first_device(step, devices))
    ]
    assert used == [{device.parsed for device in devices}, {devices[0].parsed}]
    assert {op.device for op in trace(step, X).ops if op.type == "Tanh"} == used[0]


@pytest.mark.parametrize("kind", ["tensorflow", "numpy"])
def test_both_runs_draw_the_same_numbers_and_the_generators_keep_theirs(devices: Devices, kind: str) -> None:
    w = tf.Variable(tf.random.stateless_normal((6, 6), (1, 2)))

    def noise(part: Any) -> Any:
        if kind == "numpy":
            return np.random.normal(size=(2, 6)).astype("float32")  # noqa: NPY002 - what users' code has
        return tf.nn.dropout(tf.random.normal(tf.shape(part)), 0.5)

    def step(x: Any, wrong: bool = False) -> Any:
        results = []
        for number, part in enumerate(tf.split(x, len(devices))):
            with tf.device(devices[number].name):
                results.append((part + noise(part)) @ w)
        # Numbers of the program itself that follow no generator, as from a race.
        return tf.concat(results, 0) + (float(next(count)) if wrong else 0.0)

    before, count = tf.function(step), itertools.count()
    x = tf.zeros((2 * len(devices), 6))
    before(x)  # this trace has no seeds

    def begin() -> None:
        tf.random.set_seed(5)
        np.random.seed(5)  # noqa: NPY002

    def drawn() -> list[float]:
        return [float(tf.random.uniform([])), np.random.rand()]  # noqa: NPY002

    begin()
    expected = drawn()
    begin()
    for fn in (step, tf.function(step), before):
        found = verify(fn, inputs={"x": x}, devices=devices, variables=[w], gradients=False)
        assert found.passed, str(found)
    assert drawn() == expected
    other = verify(lambda x: step(x, wrong=True), inputs={"x": x}, devices=devices, gradients=False)
    assert not other.passed, str(other)


def test_devices_are_those_that_were_configured_unless_given(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    def everywhere() -> Any:
        sums = []
        for device in devices:
            with tf.device(device.name):
                sums.append(tf.reduce_sum(tf.constant(X) ** 2))
        return tf.add_n(sums)

    assert verify(everywhere, modes=("eager",)).exercised.devices == devices.names
    monkeypatch.setattr(of_verify, "current", lambda: None)
    with pytest.raises(UsageError, match=r"call harness\.configure first"):
        verify(everywhere)


def test_a_program_that_raises_is_told_once_with_its_line(devices: Devices) -> None:
    def step(x: Any) -> Any:
        with tf.device(devices[1].name):
            return x[:, :3] @ x

    found = verify(step, inputs={"x": X}, devices=devices)
    assert found.verdict is Verdict.UNKNOWN
    assert found.reason.startswith("the program raised InvalidArgumentError: Matrix size-incompatible")
    assert f"(test_without_reference.py:{step.__code__.co_firstlineno + 2}, eager)" in found.reason.replace(
        "tests/judgement/", ""
    )
    assert found.reason.count("raised") == 1
    missing = verify(step, devices=devices)
    lacking = "missing 1 required positional argument: 'x' (eager)"
    assert missing.reason == f"the program raised TypeError: {step.__qualname__}() {lacking}"


def test_a_pass_says_that_no_value_was_compared(devices: Devices) -> None:
    def work() -> None:
        for device in devices:
            with tf.device(device.name):
                tf.matmul(X, X, transpose_b=True)

    found = verify(work, devices=devices)
    assert found.verdict is Verdict.PASS, found
    assert "no value was compared" in found.reason
    both = verify(work, lambda: work(), devices=devices)
    assert both.verdict is Verdict.UNKNOWN
    assert both.reason == "no value was compared, as the programs return none and update no variable"
    kept = verify(
        lambda x: tf.concat([_part(x, device.name) for device in devices], 0), inputs={"x": X}, devices=devices
    )
    assert "no value was compared" not in kept.reason


def _part(x: Any, device: str) -> Any:
    with tf.device(device):
        return tf.tanh(x)
