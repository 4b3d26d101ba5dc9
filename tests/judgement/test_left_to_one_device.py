"""Updates, members, the parts of one input and a last layer, shared out; and left to the first device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from two_device_case import Case, judged

from harness import Devices
from harness.faults.samples import sample

pytestmark = pytest.mark.devices(min=2)


def _variable(device: Any, *shape: int, seed: int = 0) -> Any:
    with tf.device(None if device is None else device.name):
        return tf.Variable(sample(*shape, seed=seed) / 4)


def updates_with_a_penalty(devices: Devices, wrong: bool) -> Case:
    """The gradient of each client is a sum: of its loss, and of a penalty on its weights."""
    server = _variable(None, 8, 8)
    clients = [_variable(device, 8, 8, seed=1 + number) for number, device in enumerate(devices)]

    def run(x: Any, scoped: bool) -> Any:
        gradients = []
        for device, weights, part in zip(devices, clients, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name if scoped else None):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.tanh(part @ weights) ** 2) + tf.reduce_sum((weights - server) ** 2)
                gradients.append(tape.gradient(loss, weights))
        for device, weights, gradient in zip(devices, clients, gradients, strict=True):
            with tf.device((devices[0] if wrong else device).name if scoped else None):
                weights.assign(weights.read_value() - 0.1 * gradient)
        server.assign(tf.add_n([weights.read_value() for weights in clients]) / len(clients))

    return Case(lambda x: run(x, True), lambda x: run(x, False), {"x": sample(8, 8)}, [server, *clients])


def controls_that_are_returned(devices: Devices, wrong: bool) -> Case:
    """The first device, which is the host, computes new controls of weights that it gets, and of what clients keep."""
    server = _variable(None, 8, 8)
    controls = [_variable(device, 8, 8, seed=1 + number) for number, device in enumerate(devices)]

    def run(x: Any, scoped: bool) -> Any:
        after, new = [], []
        for device, control, part in zip(devices, controls, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name if scoped else None):
                weights = tf.identity(server)
                with tf.GradientTape() as tape:
                    tape.watch(weights)
                    loss = tf.reduce_mean(tf.nn.relu(part @ weights) ** 2)
                after.append(weights - 0.1 * (tape.gradient(loss, weights) - control))
        for device, control, weights in zip(devices, controls, after, strict=True):
            with tf.device((devices[0] if wrong else device).name if scoped else None):
                new.append(control + (server - weights) / 0.1)
        return tf.stack(new)

    return Case(lambda x: run(x, True), lambda x: run(x, False), {"x": sample(8, 8)}, [])


def members_mirrored_by_their_sign(devices: Devices, wrong: bool) -> Case:
    """What leads to the first layers of two members differs: noise is added to the mean, or taken off it."""
    mean = _variable(None, 12, 12)

    def run(x: Any, scoped: bool) -> Any:
        def fitness(weights: Any) -> Any:
            return tf.reduce_mean((tf.tanh(x @ weights) - x) ** 2)

        steps = []
        for number, device in enumerate(devices):
            noise = tf.random.stateless_normal((12, 12), (number, 5)) * 0.1
            with tf.device(device.name if scoped else None):
                up = fitness(mean + noise)
            with tf.device((devices[0] if wrong else device).name if scoped else None):
                down = fitness(mean - noise)
            steps.append(noise * (up - down))
        return tf.add_n(steps)

    return Case(lambda x: run(x, True), lambda x: run(x, False), {"x": sample(16, 12)}, [])


def targets_of_each_shard(devices: Devices, wrong: bool) -> Case:
    """Most of the work has no weights, and is done on parts of an argument that never meet those of the other one."""
    weights, anchors = _variable(None, 12, 4), tf.abs(sample(10, 4, seed=3))

    def matched(boxes: Any) -> Any:
        near = tf.minimum(anchors[None, :, None], boxes[:, None])
        far = tf.maximum(anchors[None, :, None], boxes[:, None])
        return tf.reduce_max(tf.reduce_prod(near / far, -1), 2)

    def parallel(x: Any, boxes: Any) -> Any:
        made, targets = [], []
        shards = zip(devices, tf.split(x, len(devices)), tf.split(boxes, len(devices)), strict=True)
        for device, part, truth in shards:
            with tf.device(device.name):
                made.append(tf.nn.relu(part @ weights))
            with tf.device(None if wrong else device.name):
                targets.append(matched(truth))
        return tf.concat(made, 0), tf.concat(targets, 0)

    inputs = {"x": sample(8, 12), "boxes": abs(sample(8, 5, 4, seed=1)) + 0.1}
    return Case(parallel, lambda x, boxes: (tf.nn.relu(x @ weights), matched(boxes)), inputs, [])


def decoder_after_the_join(devices: Devices, wrong: bool) -> Case:
    """The products of both halves take as long, and the activation makes the decoder most of the work.

    The twin decodes fewer columns.
    """
    encoder, decoder = _variable(None, 12, 4), _variable(None, 4, 12 if wrong else 4, seed=1)

    def parallel(x: Any) -> Any:
        codes = []
        for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                codes.append(tf.nn.relu(part @ encoder))
        return tf.nn.relu(tf.concat(codes, 0) @ decoder)

    return Case(parallel, lambda x: tf.nn.relu(tf.nn.relu(x @ encoder) @ decoder), {"x": sample(8, 12)}, [])


CASES = [
    (updates_with_a_penalty, "one of them computes the updates of all"),
    (controls_that_are_returned, "device scope that is not the shard's"),
    (members_mirrored_by_their_sign, "crowd on one device"),
    (targets_of_each_shard, "on all parts of one input ran on one device"),
    (decoder_after_the_join, "the joined results of all shards"),
]


@pytest.mark.parametrize(("make", "cause"), CASES, ids=[make.__name__ for make, _ in CASES])
def test_what_the_first_device_does_for_all_is_found_and_the_clean_twin_passes(
    devices: Devices, make: Callable[..., Case], cause: str
) -> None:
    judged(devices, make, cause)
