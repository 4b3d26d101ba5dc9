"""Towers with an argument each, what is done with their results, one that Python computes, and slots of weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
from harness.faults.catalogue import CATALOGUE
from harness.faults.samples import sample
from harness.records import Verdict

pytestmark = pytest.mark.devices(min=2)

_INPUTS = {"user": sample(12, 16), "item": sample(12, 20, seed=1)}
_Program = Callable[..., Any]


def _variable(device: str, *shape: int, seed: int) -> tf.Variable:
    with tf.device(device):
        return tf.Variable(sample(*shape, seed=seed) / 4)


def _verify(
    parallel: _Program, reference: _Program, inputs: Any, devices: harness.Devices, *modes: str
) -> harness.Verification:
    modes = modes or ("eager", "graph")
    return harness.verify(parallel, reference, inputs, devices=devices[:2], modes=modes, gradients=False)


def _kinds(found: harness.Verification) -> set[tuple[str | None, str]]:
    return {(finding.mode, finding.kind) for finding in found.findings}


@pytest.mark.parametrize("score", ["products", "cosines"])
def test_what_is_done_with_the_results_of_two_towers_is_no_use_of_a_device(
    score: str, devices: harness.Devices
) -> None:
    first, second = devices[0].name, devices[1].name

    def scores(user: Any, item: Any) -> Any:
        if score == "cosines":
            return tf.reduce_sum(tf.math.l2_normalize(user, 1) * tf.math.l2_normalize(item, 1), 1)
        return tf.nn.log_softmax(tf.matmul(user, item, transpose_b=True))

    def programs(at: str) -> tuple[_Program, _Program]:
        of_user = [_variable(at, 16, 24, seed=2), _variable(at, 24, 8, seed=3)]
        of_item = [_variable(second, 20, 24, seed=4), _variable(second, 24, 8, seed=5)]

        def tower(rows: Any, weights: Any) -> Any:
            return tf.matmul(tf.nn.relu(tf.matmul(rows, weights[0])), weights[1])

        def parallel(user: Any, item: Any) -> Any:
            with tf.device(at):
                user = tower(user, of_user)
            with tf.device(second):
                item = tower(item, of_item)
            return scores(user, item)

        return parallel, lambda user, item: scores(tower(user, of_user), tower(item, of_item))

    assert _kinds(_verify(*programs(second), _INPUTS, devices)) == {("eager, graph", "unused-device")}
    clean = _verify(*programs(first), _INPUTS, devices)
    assert clean.verdict is Verdict.PASS, clean


def test_a_small_model_of_the_results_of_two_towers_is_a_use_of_a_device(devices: harness.Devices) -> None:
    """Twins, which are arguments that look like parts of one batch, are compared by a head with weights of its own."""
    weights = [_variable(devices[0].name, 16, 32, seed=2), _variable(devices[0].name, 32, 16, seed=3)]
    head = _variable(devices[1].name, 16, 6, seed=4)

    def twin(rows: Any) -> Any:
        return tf.matmul(tf.nn.relu(tf.matmul(rows, weights[0])), weights[1])

    def program(one: Any, other: Any, spread: bool = True) -> Any:
        with tf.device(devices[0].name):
            apart = tf.abs(twin(one) - twin(other))
        with tf.device(devices[int(spread)].name):
            return tf.sigmoid(tf.matmul(apart, head))

    inputs = {"one": sample(12, 16), "other": sample(12, 16, seed=1)}
    found = _verify(program, lambda **given: program(**given, spread=False), inputs, devices)
    assert found.verdict is Verdict.PASS, found


@pytest.mark.parametrize("cut", [True, False])
def test_a_tower_that_python_computes_is_found_beside_one_of_tensorflow(cut: bool, devices: harness.Devices) -> None:
    """The second tower gets a part of the rows, or an argument of its own; its head is TensorFlow's."""
    values = sample(16, 48, seed=2) / 4, sample(48, 8, seed=3) / 4
    weights = [tf.Variable(value) for value in values]
    head = tf.Variable(sample(8, 8, seed=4))

    def tower(rows: Any, of_python: bool) -> Any:
        if of_python:
            made = tf.constant(np.maximum(rows.numpy() @ values[0], 0) @ values[1])
        else:
            made = tf.matmul(tf.nn.relu(tf.matmul(rows, weights[0])), weights[1])
        return tf.matmul(made, head)

    def program(one: Any, other: Any, of_python: bool = False) -> Any:
        parts = tf.split(one, 2) if cut else (one, other)
        results = []
        for number, (device, part) in enumerate(zip(devices[:2], parts, strict=True)):
            with tf.device(device.name):
                results.append(tower(part, of_python and number == 1))
        return tf.concat(results, 0) if cut else results[0] * results[1]

    inputs = {"one": sample(12, 16), "other": sample(12, 16, seed=1)}
    found = _verify(lambda **given: program(**given, of_python=True), program, inputs, devices, "eager")
    assert _kinds(found) == {("eager", "op-placement")}
    assert "NumPy or Python did the work" in found.reason
    clean = _verify(program, program, inputs, devices, "eager")
    assert clean.verdict is Verdict.PASS, clean


def test_a_constant_that_no_argument_leads_to_is_no_work_of_python(devices: harness.Devices) -> None:
    weights, of_prior = _variable(devices[0].name, 16, 8, seed=2), _variable(devices[1].name, 6, 8, seed=3)
    prior = sample(12, 6, seed=4)

    def program(user: Any, step: Any) -> Any:
        with tf.device(devices[0].name):
            made = tf.nn.relu(tf.matmul(user, weights))
        with tf.device(devices[1].name):
            return made + tf.tanh(tf.matmul(tf.constant(prior), of_prior))

    inputs = {"user": sample(12, 16), "step": np.int32(3)}
    found = _verify(program, program, inputs, devices, "eager")
    assert found.verdict is Verdict.PASS, found


def test_a_window_of_numpy_beside_an_argument_that_is_not_read_is_no_work_of_python(devices: harness.Devices) -> None:
    def program(x: Any, teacher: Any, spread: bool = True) -> Any:
        results = []
        for device, rows in zip(devices[:2], tf.split(x, 2), strict=True):
            with tf.device(device.name if spread else devices[0].name):
                results.append(tf.tanh(rows * tf.constant(np.hanning(6)[1:5], tf.float32)))
        return tf.concat(results, 0)

    inputs = {"x": sample(8, 4), "teacher": sample(8, 5)}
    found = _verify(program, lambda x, teacher: program(x, teacher, spread=False), inputs, devices, "eager")
    assert found.verdict is Verdict.PASS, found


@pytest.mark.parametrize("wrong", [True, False])
def test_a_momentum_belongs_beside_its_weights_and_a_bias_may_be_on_the_host(
    wrong: bool, devices: harness.Devices
) -> None:
    names = [device.name for device in devices[:2]]
    weights = [_variable(name, 16, 8, seed=number) for number, name in enumerate(names)]
    momenta = [_variable(name, 16, 8, seed=7) for name in (names[::-1] if wrong else names)]
    averages = [_variable(devices.host, 16, 8, seed=8) for _ in names]
    bias = _variable(devices.host, 8, seed=9)

    def program(rows: Any, spread: bool = True) -> Any:
        results = []
        for name, own, momentum, average in zip(names, weights, momenta, averages, strict=True):
            with tf.device(name if spread else names[0]):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(tf.square(tf.matmul(rows, own)), 0)
                gradient = tape.gradient(loss, own)
                momentum.assign(0.9 * momentum + gradient)
                own.assign_sub(0.01 * momentum)
            average.assign(0.9 * average + 0.1 * own)
            results.append(loss)
        return tf.add_n(results) + bias

    inputs = {"rows": sample(6, 16)}
    found = _verify(program, lambda rows: program(rows, spread=False), inputs, devices, "graph")
    assert _kinds(found) == ({("graph", "variable-placement")} if wrong else set()), found
    if wrong:
        assert found.reason.startswith("What a variable is updated with, such as its momentum, is not on"), found


def test_slots_of_a_keras_optimizer_are_one_finding_that_names_them(devices: harness.Devices) -> None:
    found = CATALOGUE["P10-slots-on-the-default-device"].plant(devices).judge(devices, faulty=True)
    assert len(found.findings) == 1, found
    assert found.reason.startswith("TensorFlow creates slots on the default device in the first step: slot "), found
