"""What may cross between the devices of a pipeline: tensors that are handed on, and the gradients of arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness

_UNITS = 4
_ROWS = 7
_HOST = "/device:CPU:0"


def _sample(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def _weights(devices: harness.Devices) -> list[Any]:
    made = []
    for index, device in enumerate(devices):
        with tf.device(device.name):
            made.append(tf.Variable(_sample(_UNITS, _UNITS, seed=index) / 2, name=f"w{index}"))
    return made


def _in_turn(stages: list[Callable[..., Any]]) -> Callable[..., Any]:
    def program(**arguments: Any) -> Any:
        value = stages[0](**arguments)
        for stage in stages[1:]:
            value = stage(value)
        return value

    return program


def _handing_on(weights: list[Any], used: tuple[int, ...], clipped: bool = False) -> list[Callable[..., Any]]:
    """Three stages that hand ``scale`` on; some of them use it."""

    def step(index: int, x: Any, scale: Any) -> Any:
        x = tf.tanh(tf.matmul(x, weights[index]))
        factor = tf.exp(scale - 1.0) if index == 2 else scale  # no op computes the gradient of a difference
        return x * factor if index in used else x

    def middle(value: tuple[Any, Any]) -> Any:
        x, scale = value
        if clipped:
            with tf.device(_HOST):
                scale = tf.clip_by_value(scale, -9.0, 9.0)
        return step(1, x, scale), scale

    return [
        lambda x, scale: (step(0, x, tf.convert_to_tensor(scale)), tf.convert_to_tensor(scale)),
        middle,
        lambda value: step(2, *value),
    ]


def _verify(program: Any, reference: Any, inputs: Any, devices: harness.Devices, weights: Any) -> harness.Verification:
    return harness.verify(
        program, reference, inputs, devices=devices, variables=weights, gradients=True, pattern="stages"
    )


@pytest.mark.cases(1)
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("microbatches", [1, 3])
@pytest.mark.parametrize("used", [(2,), (1, 2), (0, 1, 2), (0, 2)])
def test_the_gradient_of_what_stages_hand_on_goes_back_in_one_step(
    used: tuple[int, ...], microbatches: int, first: int, devices: harness.Devices
) -> None:
    own = devices[first : first + 3]
    weights = _weights(own)
    stages = _handing_on(weights, used)
    inputs = {"x": _sample(_ROWS, _UNITS), "scale": _sample(_ROWS, _UNITS, seed=9)}
    pipe = harness.pipeline(stages, own, microbatches=microbatches)
    found = _verify(pipe, _in_turn(stages), inputs, own, weights)
    assert found.passed, found


@pytest.mark.cases("1")
@pytest.mark.parametrize("microbatches", [1, 3])
def test_a_gradient_passes_a_stage_that_only_adds(microbatches: int, devices: harness.Devices) -> None:
    """The gradient of a sum is that of each operand: no op of the middle stage computes it."""
    own = devices[:3]
    weights = _weights(own)
    stages = [
        lambda x: tf.matmul(x, weights[0]),
        lambda x: x + weights[1][0],
        lambda x: tf.tanh(x) * weights[2][0],
    ]
    pipe = harness.pipeline(stages, own, microbatches=microbatches)
    found = _verify(pipe, _in_turn(stages), {"x": _sample(_ROWS, _UNITS)}, own, weights)
    assert found.passed, found


@pytest.mark.cases(1)
@pytest.mark.parametrize("microbatches", [1, 3])
def test_what_a_stage_fetches_to_a_device_that_is_no_part_of_the_pipeline_is_found(
    microbatches: int, devices: harness.Devices
) -> None:
    own = devices[1:4]
    weights = _weights(own)
    inputs = {"x": _sample(_ROWS, _UNITS), "scale": _sample(_ROWS, _UNITS, seed=9)}
    pipe = harness.pipeline(_handing_on(weights, (2,), clipped=True), own, microbatches=microbatches)
    found = _verify(pipe, _in_turn(_handing_on(weights, (2,))), inputs, own, weights)
    assert {finding.kind for finding in found.findings} == {"transfer"}, found
    assert "not part of the pipeline" in str(found)


@pytest.mark.cases("/device:CPU:0")
# Beside GPUs, TensorFlow runs on GPU:0 what is in no scope, and the gradient of what the host prepares.
@pytest.mark.parametrize(
    "scope", [pytest.param(scope, marks=pytest.mark.devices(min=4, kind="logical-cpu")) for scope in (None, _HOST)]
)
def test_arguments_may_be_prepared_on_a_device_that_is_no_part_of_the_pipeline(
    scope: str | None, devices: harness.Devices
) -> None:
    own = devices[1:3]
    weights = _weights(own)
    layers: list[Callable[..., Any]] = [lambda x, w=w: tf.tanh(tf.matmul(x, w)) for w in weights]
    pipe = harness.pipeline(layers, own)

    def prepared(x: Any) -> Any:
        with tf.device(scope):
            x = tf.exp(x / 4.0)
        return pipe(x=x)

    def between(x: Any) -> Any:
        with tf.device(own[0].name):
            x = layers[0](tf.exp(x / 4.0))
        with tf.device(_HOST):
            x = tf.exp(x / 4.0)
        with tf.device(own[1].name):
            return layers[1](x)

    inputs = {"x": _sample(_ROWS, _UNITS)}
    clean = _verify(prepared, lambda x: layers[1](layers[0](tf.exp(x / 4.0))), inputs, own, weights)
    assert clean.passed, clean
    wrong = _verify(between, lambda x: layers[1](tf.exp(layers[0](tf.exp(x / 4.0)) / 4.0)), inputs, own, weights)
    assert "transfer" in {finding.kind for finding in wrong.findings}, wrong


def test_gradients_of_weights_that_are_added_up_elsewhere_are_found(devices: harness.Devices) -> None:
    own = devices[1:4]
    weights = _weights(own)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def added_up_on_the_host(x: Any, w: Any) -> Any:
        with tf.device(own[2].name):
            y = tf.matmul(x, w)

        def gradient(upstream: Any) -> Any:
            with tf.device(own[2].name):
                parts = zip(tf.split(x, 2), tf.split(upstream, 2), strict=True)
                halves = [tf.matmul(a, b, transpose_a=True) for a, b in parts]
                before = tf.matmul(upstream, w, transpose_b=True)
            with tf.device(_HOST):
                return before, tf.add_n(halves)

        return y, gradient

    def program(x: Any, wrong: bool) -> Any:
        for weight, device in zip(weights[:2], own, strict=False):
            with tf.device(device.name):
                x = tf.tanh(tf.matmul(x, weight))
        with tf.device(own[2].name):
            return added_up_on_the_host(x, weights[2].read_value()) if wrong else tf.matmul(x, weights[2])

    pipe = harness.pipeline([lambda x, w=w: tf.tanh(tf.matmul(x, w)) for w in weights], own)
    inputs = {"x": _sample(6, _UNITS)}
    found = _verify(lambda x: program(x, True), lambda x: program(x, False), inputs, own, weights)
    assert "transfer" in {finding.kind for finding in found.findings}, found
    clean = _verify(pipe, lambda x: tf.tanh(program(x, False)), inputs, own, weights)
    assert clean.passed, clean


@pytest.mark.cases(1)
@pytest.mark.parametrize("apart", [False, True])
def test_weights_that_are_all_on_the_first_device_are_one_fault(apart: bool, devices: harness.Devices) -> None:
    """Their gradients go to them, in one step and over several devices."""
    if apart:
        weights = _weights(devices)
    else:
        with tf.device(devices[0].name):
            weights = [tf.Variable(_sample(_UNITS, _UNITS, seed=index) / 2) for index in range(len(devices))]
    stages = [lambda x, own=own: tf.tanh(tf.matmul(x, own)) for own in weights]
    pipe = harness.pipeline(stages, devices, microbatches=2)
    inputs = {"x": _sample(_ROWS, _UNITS)}
    found = harness.verify(pipe, _in_turn(stages), inputs, devices=devices, variables=weights)
    assert {finding.kind for finding in found.findings} == (set() if apart else {"variable-placement"}), found
    assert found.verdict is (harness.Verdict.PASS if apart else harness.Verdict.FAIL)


@pytest.mark.parametrize("adds", [True, False])
def test_a_stage_that_only_adds_in_a_loop_is_used_and_one_that_only_asks_is_not(
    adds: bool, devices: harness.Devices
) -> None:
    pair = devices[:2]
    weights = _weights(pair)
    inputs = {"x": tf.constant(_sample(_ROWS, 32, _UNITS)), "wanted": tf.constant([1, 0, 2, 1, 0, 0, 1])}

    def loop(x: Any, wanted: Any) -> Any:
        def step(i: Any, x: Any) -> tuple[Any, Any]:
            return i + 1, tf.where((i < wanted)[:, None, None], x + weights[1][0], x)

        return tf.while_loop(lambda i, _: tf.reduce_any(i < wanted), step, (0, x))[1]

    def asks(x: Any, wanted: Any) -> Any:
        wrong = tf.reduce_any(x > 1e9)
        with tf.device(_HOST):
            checked = tf.debugging.Assert(tf.logical_not(wrong), ["too large"])
        with tf.control_dependencies([checked]):
            return tf.identity(x)

    def program(x: Any, wanted: Any) -> Any:
        with tf.device(pair[0].name):
            x = tf.tanh(x @ weights[0]) @ weights[0]
        with tf.device(pair[1].name):
            return (loop if adds else asks)(x, wanted)

    def reference(x: Any, wanted: Any) -> Any:
        x = tf.tanh(x @ weights[0]) @ weights[0]
        return loop(x, wanted) if adds else x

    verification = harness.verify(program, reference, inputs, devices=pair, pattern="stages", modes=["graph"])
    assert verification.passed is adds, str(verification)
    assert adds or verification.findings[0].kind == "unused-device"
