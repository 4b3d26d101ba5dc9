"""Towers as people write them, after well-known recipes, and random ones: one line puts their backward ops in place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from generated_towers import GeneratedTowers
from tower_programs import elsewhere, numbers

from harness import Devices, Verdict, colocate_gradients, make_parallel, trace, verify

Model = Callable[[Any], Any]


def guide(model: Model, devices: Devices) -> Model:
    """TensorFlow's guide to several GPUs: a loop over the devices, and the results brought to the host."""

    def parallel(x: Any) -> Any:
        results = []
        for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                results.append(model(part))
        with tf.device(devices.host):
            return tf.concat(results, axis=0)

    return parallel


def by_slices(model: Model, devices: Devices) -> Model:
    """As kuza55's ``make_parallel``: each device cuts its slice out of the batch by the batch's shape."""

    def parallel(x: Any) -> Any:
        results = []
        for index, device in enumerate(devices):
            with tf.device(device.name), tf.name_scope(f"tower_{index}"):
                rows = tf.shape(x)[0] // len(devices)
                results.append(model(tf.slice(x, tf.stack([index * rows, 0]), tf.stack([rows, -1]))))
        with tf.device(devices.host):
            return tf.concat(results, axis=0)

    return parallel


def by_replicas(model: Model, devices: Devices) -> Model:
    """As Keras's ``multi_gpu_model``: slices are made in the replica, and the last one takes what is left over."""

    def parallel(x: Any) -> Any:
        results = []
        for index, device in enumerate(devices):
            with tf.device(device.name), tf.name_scope(f"replica_{index}"):
                step = tf.shape(x)[0] // len(devices)
                end = tf.shape(x)[0] if index == len(devices) - 1 else (index + 1) * step
                results.append(model(x[index * step : end]))
        with tf.device(devices.host), tf.name_scope("joined"):
            return tf.concat(results, axis=0)

    return parallel


def test_the_gradient_of_a_tf_function_with_loops_that_read_variables(devices: Devices) -> None:
    """TensorFlow alone refuses it, where a loop and its variable are on different devices."""
    w, inputs = tf.Variable(numbers(3, 3)), {"x": np.ones((2 * len(devices), 3), "float32")}

    def model(x: Any) -> Any:
        return tf.while_loop(lambda n, _: n < 3, lambda n, y: (n + 1, tf.tanh(tf.matmul(y, w))), (0, x))[1]

    towers = tf.function(guide(model, devices))
    refused = verify(towers, model, inputs, devices=devices, variables=[w], modes=["eager"])
    assert "a tf.function whose loop runs on one device and reads a variable on another" in refused.reason
    for parallel in (colocate_gradients(towers), tf.function(make_parallel(model, devices))):
        cured = verify(parallel, model, inputs, devices=devices, variables=[w], modes=["eager"])
        assert cured.verdict is Verdict.PASS, cured


def test_the_gradient_of_a_tf_function_with_means_of_an_unknown_shape(devices: Devices) -> None:
    w, inputs = tf.Variable(numbers(3, 3)), {"x": np.ones((2 * len(devices), 3), "float32")}

    def model(x: Any) -> Any:
        return tf.reduce_mean(tf.tanh(tf.matmul(x, w)), axis=1)

    towers = tf.function(by_replicas(model, devices), input_signature=[tf.TensorSpec([None, None])])
    plain = verify(towers, model, inputs, devices=devices, variables=[w], modes=["eager"])
    assert {finding.kind for finding in plain.findings} == {"gradient-placement"}, plain
    cured = verify(colocate_gradients(towers), model, inputs, devices=devices, variables=[w], modes=["eager"])
    assert cured.verdict is Verdict.PASS, cured


@pytest.mark.cases(1)
@pytest.mark.parametrize("recipe", [guide, by_slices, by_replicas], ids=lambda recipe: recipe.__name__)
def test_a_recipe_for_towers_passes_within_the_context_and_not_without(devices: Devices, recipe: Any) -> None:
    w, b, v = tf.Variable(numbers(6, 8)), tf.Variable(numbers(8)), tf.Variable(numbers(8, 3))

    def model(x: Any) -> Any:
        return tf.matmul(tf.nn.relu(tf.matmul(x, w) + b), v)

    inputs = {"x": np.random.default_rng(0).normal(size=(4 * len(devices), 6)).astype("float32")}
    parallel = recipe(model, devices)
    plain = verify(parallel, model, inputs, devices=devices, variables=[w, b, v])
    assert {finding.kind for finding in plain.findings} == {"gradient-placement"}, plain
    with colocate_gradients():
        cured = verify(parallel, model, inputs, devices=devices, variables=[w, b, v])
    assert cured.verdict is Verdict.PASS, cured
    assert cured.exercised.gradients >= 4


def test_a_training_step_whose_towers_have_losses_of_their_own_passes_within_the_context_and_not_without(
    devices: Devices,
) -> None:
    """As the cifar10 example: a loss in each tower, the mean gradient on the host, and here one tape around all."""
    w, b = tf.Variable(numbers(6, 3)), tf.Variable(numbers(3))
    inputs = {
        "x": np.random.default_rng(0).normal(size=(4 * len(devices), 6)).astype("float32"),
        "labels": np.array([0, 1, 2, 1] * len(devices)),
    }

    def loss_of_tower(x: Any, labels: Any) -> Any:
        logits = tf.matmul(x, w) + b
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    def train(gradients: Any) -> Any:
        for variable, gradient in zip([w, b], gradients, strict=True):
            variable.assign_sub(0.1 * gradient)
        return gradients

    def towers(x: Any, labels: Any) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            losses = []
            parts = zip(devices, tf.split(x, len(devices)), tf.split(labels, len(devices)), strict=True)
            for index, (device, rows, own) in enumerate(parts):
                with tf.device(device.name), tf.name_scope(f"tower_{index}"):
                    losses.append(loss_of_tower(rows, own))
        of_towers = [tape.gradient(loss, [w, b]) for loss in losses]
        with tf.device(devices.host):
            return train([tf.reduce_mean(tf.stack(grads), axis=0) for grads in zip(*of_towers, strict=True)])

    def one(x: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of_tower(x, labels)
        return train(tape.gradient(loss, [w, b]))

    plain = verify(towers, one, inputs, devices=devices, variables=[w, b])
    assert {finding.kind for finding in plain.findings} == {"gradient-placement"}, plain
    with colocate_gradients():
        cured = verify(towers, one, inputs, devices=devices, variables=[w, b])
    assert cured.verdict is Verdict.PASS, cured


@pytest.mark.cases(1)
@pytest.mark.parametrize("within_first", [True, False])
@pytest.mark.parametrize("of", ["concrete function", "loaded model"])
@pytest.mark.parametrize("order", [1, 2])
def test_a_trace_keeps_its_backward_functions_within_the_context_apart_from_those_outside(
    devices: Devices, tmp_path: Path, of: str, within_first: bool, order: int
) -> None:
    """TensorFlow builds them at the first call under a tape, of what is not traced anew: nested ones as well."""
    model = tf.Module()
    model.w = tf.Variable(numbers(6, 6))
    signature = [tf.TensorSpec([2 * len(devices), 6])]
    model.towers = tf.function(guide(lambda x: tf.tanh(tf.matmul(x, model.w)), devices), input_signature=signature)
    model.predict = tf.function(lambda x: tf.sin(model.towers(x)), input_signature=signature)
    predict = model.predict.get_concrete_function()
    if of == "loaded model":
        tf.saved_model.save(model, str(tmp_path))
        model = tf.saved_model.load(str(tmp_path))
        predict = model.predict

    def gradient(order: int = order) -> Any:
        with tf.GradientTape() as tape:
            inner = gradient(order - 1) if order > 1 else predict(numbers(2 * len(devices), 6))
            loss = tf.reduce_sum(inner**2)
        return tape.gradient(loss, model.w)

    graph = tf.function(lambda: gradient())
    for within in (within_first, not within_first, within_first):
        for call in (gradient, graph):
            mended = colocate_gradients(call) if within else call
            places = {op.device for op in trace(mended).ops if op.type == "TanhGrad" and op.device is not None}
            assert len(places) == (len(devices) if within else 1)
            np.testing.assert_allclose(mended(), gradient(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_generated_towers_are_cured(devices: Devices, seed: int) -> None:
    towers = GeneratedTowers(devices, seed)
    expected = [value.numpy() for value in towers.gradients()]
    with colocate_gradients():
        assert elsewhere(trace(towers.gradients)) == [], towers.drawn
        assert [value.numpy().tobytes() for value in towers.gradients()] == [value.tobytes() for value in expected]
