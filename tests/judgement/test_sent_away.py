"""What belongs to one device, and is computed on another one that sends it back; and what only looks like that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import harness
from harness import Devices
from harness.faults.samples import sample

Pair = tuple[Callable[..., Any], Callable[..., Any], dict[str, Any], list[Any]]
_UNITS = 32


def _weights(devices: Devices, *, seed: int = 0) -> list[Any]:
    made = []
    for number, device in enumerate(devices):
        with tf.device(device.name):
            made.append(tf.Variable(sample(_UNITS, _UNITS, seed=seed + number) / 6.0))
    return made


def members_update(devices: Devices, wrong: bool) -> Pair:
    """The updates of all members multiply matrices on the first device."""
    weights, factors = _weights(devices), _weights(devices, seed=9)

    def gradient(w: Any, x: Any, y: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.tanh(x @ w) - y) ** 2)
        return loss, tape.gradient(loss, w)

    def update(w: Any, factor: Any, slope: Any) -> None:
        factor.assign(0.9 * factor + tf.matmul(slope, slope, transpose_b=True))
        w.assign_sub(0.1 * (factor @ slope))

    def parallel(x: Any, y: Any) -> Any:
        found = []
        for device, w in zip(devices, weights, strict=True):
            with tf.device(device.name):
                found.append(gradient(w, x, y))
        for number, (w, factor) in enumerate(zip(weights, factors, strict=True)):
            with tf.device(devices[0 if wrong else number].name):
                update(w, factor, found[number][1])
        return tf.stack([loss for loss, _ in found])

    def reference(x: Any, y: Any) -> Any:
        found = [gradient(w, x, y) for w in weights]
        for w, factor, (_, slope) in zip(weights, factors, found, strict=True):
            update(w, factor, slope)
        return tf.stack([loss for loss, _ in found])

    return parallel, reference, {"x": sample(12, _UNITS), "y": sample(12, _UNITS, seed=1)}, weights + factors


def penalties_of_clients(devices: Devices, wrong: bool) -> Pair:
    """How far the weights of each client are from those of all is computed on the first device."""
    clients, common = _weights(devices), tf.Variable(sample(_UNITS, _UNITS, seed=20) / 6.0)

    def loss_of(w: Any, x: Any, y: Any) -> Any:
        return tf.reduce_mean((tf.tanh(x @ w) - y) ** 2)

    def penalty(w: Any) -> Any:
        apart = w - common
        return 0.1 * tf.reduce_sum(tf.matmul(apart, apart, transpose_a=True) ** 2)

    def parallel(x: Any, y: Any) -> Any:
        losses = []
        parts = zip(clients, tf.split(x, len(devices)), tf.split(y, len(devices)), strict=True)
        for number, (w, a, b) in enumerate(parts):
            with tf.device(devices[number].name):
                loss = loss_of(w, a, b)
            with tf.device(devices[0 if wrong else number].name):
                more = penalty(w)
            with tf.device(devices[number].name):
                losses.append(loss + more)
        return tf.stack(losses)

    def reference(x: Any, y: Any) -> Any:
        parts = zip(clients, tf.split(x, len(devices)), tf.split(y, len(devices)), strict=True)
        return tf.stack([loss_of(w, a, b) + penalty(w) for w, a, b in parts])

    return parallel, reference, {"x": sample(16, _UNITS), "y": sample(16, _UNITS, seed=1)}, []


def queries_of_tasks(devices: Devices, wrong: bool) -> Pair:
    """Each task adapts weights in its scope, and works with them on other rows after it."""
    w = tf.Variable(sample(_UNITS, _UNITS) / 6.0)

    def adapted(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.tanh(x @ w) - y) ** 2)
        return w - 0.1 * tape.gradient(loss, w)

    def parallel(x: Any, y: Any, query: Any) -> Any:
        found = []
        for task in range(2 * len(devices)):
            with tf.device(devices[task // 2].name):
                own = adapted(x[task], y[task])
                result = None if wrong else tf.reduce_mean(tf.tanh(query[task] @ own))
            found.append(tf.reduce_mean(tf.tanh(query[task] @ own)) if result is None else result)
        return tf.stack(found)

    def reference(x: Any, y: Any, query: Any) -> Any:
        tasks = range(2 * len(devices))
        return tf.stack([tf.reduce_mean(tf.tanh(query[task] @ adapted(x[task], y[task]))) for task in tasks])

    rows = 2 * len(devices)
    inputs = {name: sample(rows, 8, _UNITS, seed=number) for number, name in enumerate(("x", "y", "query"))}
    return parallel, reference, inputs, []


@pytest.mark.cases("members_update")
@pytest.mark.parametrize("make", [members_update, penalties_of_clients, queries_of_tasks])
def test_what_belongs_to_one_device_is_found_on_another(
    make: Callable[[Devices, bool], Pair], devices: Devices
) -> None:
    for wrong in (False, True):
        parallel, reference, inputs, variables = make(devices, wrong)
        found = harness.verify(parallel, reference, inputs, devices=devices, variables=variables, gradients=False)
        assert {finding.kind for finding in found.findings} == ({"op-placement"} if wrong else set()), found
        assert found.passed is not wrong


@pytest.mark.cases("None", "update")
@pytest.mark.parametrize("fault", [None, "update", "last layer", "layer between"])
def test_a_pipeline_may_hand_gradients_back_without_a_tape(fault: str | None, devices: Devices) -> None:
    three = devices[:3]
    weights, head = _weights(three), tf.Variable(sample(_UNITS, _UNITS, seed=30) / 6.0)
    step_size = tf.eye(_UNITS) / 8.0

    def parallel(x: Any, y: Any) -> Any:
        kept, value = [], x
        for number, device in enumerate(three):
            with tf.device(device.name):
                made = tf.tanh(value @ weights[number])
            if fault == "layer between" and number == 1:
                with tf.device(three[0].name):
                    made = tf.tanh(made @ head)
            kept.append((value, made))
            value = made
        if fault == "last layer":
            with tf.device(three[1].name):
                value = tf.tanh(value @ head)
        with tf.device(three[2].name):
            upstream, loss = value - y, tf.reduce_sum((value - y) ** 2) / 2.0
        slopes: list[Any] = []
        for number in reversed(range(3)):
            with tf.device(three[number].name):
                given, made = kept[number]
                upstream = upstream * (1.0 - made**2)
                slopes.insert(0, tf.matmul(given, upstream, transpose_a=True))
                upstream = tf.matmul(upstream, weights[number], transpose_b=True)
        for number, slope in enumerate(slopes):
            with tf.device(three[0 if fault == "update" else number].name):
                weights[number].assign_sub(0.1 * (step_size @ slope))
        return loss

    def reference(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            for number, w in enumerate(weights):
                x = tf.tanh(x @ w)
                if fault == "layer between" and number == 1:
                    x = tf.tanh(x @ head)
            x = tf.tanh(x @ head) if fault == "last layer" else x
            loss = tf.reduce_sum((x - y) ** 2) / 2.0
        for w, slope in zip(weights, tape.gradient(loss, weights), strict=True):
            w.assign_sub(0.1 * (step_size @ slope))
        return loss

    inputs = {"x": sample(8, _UNITS), "y": sample(8, _UNITS, seed=1)}
    found = harness.verify(parallel, reference, inputs, devices=three, variables=weights, pattern="stages")
    kinds = {finding.kind for finding in found.findings}
    if fault is None:
        assert found.passed, found
    else:
        assert ("op-placement" if fault == "update" else "transfer") in kinds, found


@pytest.mark.parametrize("columns", [2, 4])
def test_the_blocks_of_a_product_may_be_anywhere(columns: int, devices: Devices) -> None:
    def parallel(a: Any, b: Any) -> Any:
        rows = []
        for number, part in enumerate(tf.split(a, 4)):
            row = []
            for other, columns_of_b in enumerate(tf.split(b, columns, axis=1)):
                with tf.device(devices[(number + other) % len(devices)].name):
                    row.append(part @ columns_of_b)
            rows.append(tf.concat(row, 1))
        return tf.concat(rows, 0)

    inputs = {"a": sample(16, _UNITS), "b": sample(_UNITS, 16, seed=1)}
    found = harness.verify(parallel, tf.matmul, inputs, devices=devices, gradients=False)
    assert found.passed, found


def test_what_several_devices_do_for_the_update_of_one_variable_is_shared_out(devices: Devices) -> None:
    """As members of a population do, whose weights are one variable and noise."""
    weights, rows = tf.Variable(sample(_UNITS, _UNITS) / 6.0), tf.constant(sample(8, _UNITS, seed=1))

    def gained(noise: Any) -> Any:
        return tf.reduce_mean(tf.tanh(rows @ (weights + noise)) @ (weights - noise)) * noise

    def parallel(noises: Any) -> Any:
        found = []
        for device, noise in zip([*devices, *devices], tf.unstack(noises), strict=True):
            with tf.device(device.name):
                found.append(gained(noise))
        weights.assign_add(0.05 * tf.add_n(found))
        return tf.reduce_sum(weights)

    def reference(noises: Any) -> Any:
        weights.assign_add(0.05 * tf.add_n([gained(noise) for noise in tf.unstack(noises)]))
        return tf.reduce_sum(weights)

    inputs = {"noises": sample(2 * len(devices), _UNITS, _UNITS, seed=2)}
    found = harness.verify(parallel, reference, inputs, devices=devices, variables=[weights], gradients=False)
    assert found.passed, found
