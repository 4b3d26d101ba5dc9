"""Work on parts of one of several inputs, on slots and on second heads that is on another device; and clean twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
from harness import Devices
from harness.faults.samples import sample

_UNITS = 16
Case = tuple[Callable[..., Any], dict[str, Any], list[Any]]


def _variable(*shape: int, seed: int = 0) -> Any:
    return tf.Variable(sample(*shape, seed=seed) / 4.0)


def _ids(high: int, *shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, high, shape).astype("int32")


def rows_that_a_second_input_picks(devices: Devices, wrong: bool) -> Case:
    """The head on the rows of a shard that its numbers pick is on the next device, where only the numbers go."""
    w, head = _variable(_UNITS, _UNITS), _variable(_UNITS, 4 * _UNITS, seed=1)

    def program(x: Any, at: Any) -> Any:
        results = []
        for i, (rows, numbers) in enumerate(zip(tf.split(x, len(devices)), tf.split(at, len(devices)), strict=True)):
            with tf.device(devices[i].name):
                seen = tf.reshape(tf.tanh(tf.reshape(rows, [-1, _UNITS]) @ w), [-1, 6, _UNITS])
            with tf.device(devices[(i + wrong) % len(devices)].name):
                picked = tf.reshape(tf.gather(seen, numbers, batch_dims=1), [-1, _UNITS])
                results.append(tf.tanh(picked @ head))
        return tf.concat(results, 0)

    number = 3 * len(devices)
    return program, {"x": sample(number, 6, _UNITS), "at": _ids(6, number, 3)}, [w, head]


def scores_of_a_common_sample(devices: Devices, wrong: bool) -> Case:
    """Each shard is compared with the same rows of a table, which the next device looks up as well as its own."""
    w, table = _variable(_UNITS, _UNITS), _variable(40, _UNITS, seed=1)

    def program(x: Any, ids: Any) -> Any:
        results = []
        for i, rows in enumerate(tf.split(x, len(devices))):
            with tf.device(devices[i].name):
                seen = tf.tanh(rows @ w)
            with tf.device(devices[(i + wrong) % len(devices)].name):
                results.append(tf.matmul(seen, tf.gather(table.read_value(), ids), transpose_b=True))
        return tf.concat(results, 0)

    return program, {"x": sample(6 * len(devices), _UNITS), "ids": _ids(40, 20)}, [w, table]


def towers_of_a_second_input(devices: Devices, wrong: bool) -> Case:
    """The towers of all items are on the first device; those of the users, which meet all items, are shared out."""
    tables = [_variable(20, _UNITS, seed=seed) for seed in range(2)]
    weights = [_variable(_UNITS, _UNITS, seed=seed) for seed in range(2, 4)]

    def tower(ids: Any, side: int) -> Any:
        return tf.tanh(tf.nn.embedding_lookup(tables[side], ids) @ weights[side])

    def program(users: Any, items: Any) -> Any:
        mine, theirs = [], []
        shards = zip(tf.split(users, len(devices)), tf.split(items, len(devices)), strict=True)
        for i, (user, item) in enumerate(shards):
            with tf.device(devices[i].name):
                mine.append(tower(user, 0))
            with tf.device(devices[0 if wrong else i].name):
                theirs.append(tower(item, 1))
        every, scores = tf.concat(theirs, 0), []
        for device, own in zip(devices, mine, strict=True):
            with tf.device(device.name):
                scores.append(tf.nn.log_softmax(tf.matmul(own, every, transpose_b=True)))
        return tf.concat(scores, 0)

    number = 6 * len(devices)
    return program, {"users": _ids(20, number), "items": _ids(20, number, seed=1)}, [*tables, *weights]


def second_head_of_images(devices: Devices, wrong: bool) -> Case:
    """The second of two convolutions of one tensor is on the next device."""
    filters = [_variable(3, 3, 3, 8), _variable(3, 3, 8, 6, seed=1), _variable(3, 3, 8, 6, seed=2)]

    def program(x: Any) -> Any:
        first, second = [], []
        for i, rows in enumerate(tf.split(x, len(devices))):
            with tf.device(devices[i].name):
                seen = tf.nn.relu(tf.nn.conv2d(rows, filters[0], 1, "SAME"))
                first.append(tf.nn.conv2d(seen, filters[1], 1, "SAME"))
            with tf.device(devices[(i + wrong) % len(devices)].name):
                second.append(tf.nn.conv2d(seen, filters[2], 1, "SAME"))
        return tf.concat(first, 0), tf.concat(second, 0)

    return program, {"x": sample(2 * len(devices), 6, 6, 3)}, filters


def half_of_the_body_of_a_loop(devices: Devices, wrong: bool) -> Case:
    """One of two calls of a model in a loop, where TensorFlow knows no sizes, is on the next device."""
    weights = [_variable(_UNITS + 4, 2 * _UNITS), _variable(2 * _UNITS, _UNITS, seed=1)]

    def noise(x: Any, given: Any) -> Any:
        return tf.tanh(tf.concat([x, given], 1) @ weights[0]) @ weights[1]

    def program(x: Any, c: Any) -> Any:
        results = []
        for i, (rows, given) in enumerate(zip(tf.split(x, len(devices)), tf.split(c, len(devices)), strict=True)):

            def turn(k: Any, z: Any, given: Any = given, i: int = i) -> Any:
                with tf.device(devices[i].name):
                    guided = noise(z, given)
                with tf.device(devices[(i + wrong) % len(devices)].name):
                    free = noise(z, tf.zeros_like(given))
                with tf.device(devices[i].name):
                    return k + 1, z - 0.1 * (free + 2.0 * (guided - free))

            with tf.device(devices[i].name):
                results.append(tf.while_loop(lambda k, z: k < 3, turn, [0, rows])[1])
        return tf.concat(results, 0)

    number = 4 * len(devices)
    return program, {"x": sample(number, _UNITS), "c": sample(number, 4, seed=1)}, weights


def slots_of_slices(devices: Devices, wrong: bool) -> Case:
    """Each device has the momentum of a slice of the weights; the first one computes all of them."""
    w, slots = _variable(4 * len(devices), _UNITS), []
    for number, device in enumerate(devices):
        with tf.device(device.name):
            slots.append(_variable(4, _UNITS, seed=number))

    def program(x: Any, y: Any) -> Any:
        slopes, new = [], []
        for device, a, b in zip(devices, tf.split(x, len(devices)), tf.split(y, len(devices)), strict=True):
            with tf.device(device.name), tf.GradientTape() as tape:
                loss = tf.reduce_sum((tf.tanh(a @ w) - b) ** 2) / x.shape[0]
                slopes.append(tape.gradient(loss, w))
        for i, device in enumerate(devices):
            with tf.device(device.name):
                slope = tf.add_n([each[4 * i : 4 * i + 4] for each in slopes])
            with tf.device(devices[0 if wrong else i].name):
                momentum = 0.9 * slots[i] + 0.1 * slope
                slots[i].assign(momentum)
                new.append(w[4 * i : 4 * i + 4] - 0.1 * momentum)
        w.assign(tf.concat(new, 0))

    number = 4 * len(devices)
    return program, {"x": sample(number, number), "y": sample(number, _UNITS, seed=1)}, [w, *slots]


@pytest.mark.cases("towers_of_a_second_input", "second_head_of_images")
@pytest.mark.parametrize(
    "program",
    [
        rows_that_a_second_input_picks,
        scores_of_a_common_sample,
        towers_of_a_second_input,
        second_head_of_images,
        half_of_the_body_of_a_loop,
        slots_of_slices,
    ],
)
def test_work_on_another_device_is_found_and_its_clean_twin_passes(
    program: Callable[[Devices, bool], Case], devices: Devices
) -> None:
    for wrong in (True, False):
        parallel, inputs, variables = program(devices, wrong)
        found = harness.verify(parallel, inputs=inputs, devices=devices, variables=variables, gradients=False)
        assert {finding.kind for finding in found.findings} == ({"op-placement"} if wrong else set()), found
        modes = {mode for finding in found.findings for mode in finding.mode.split(", ")}
        assert modes == ({"eager", "graph"} if wrong else set()), found


def test_what_clients_make_of_their_weights_and_those_of_a_server_may_be_computed_there(devices: Devices) -> None:
    """It only leads to the update of the server's weights, but is made of what is on the client's device."""
    server, clients = _variable(_UNITS, _UNITS), []
    for device in devices:
        with tf.device(device.name):
            clients.append(_variable(_UNITS, _UNITS))

    def turn(x: Any, y: Any) -> None:
        changes = []
        shards = zip(devices, clients, tf.split(x, len(devices)), tf.split(y, len(devices)), strict=True)
        for device, w, a, b in shards:
            with tf.device(device.name):
                w.assign(server)
                for _ in range(2):
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_mean((tf.tanh(a @ w) - b) ** 2)
                    w.assign_sub(0.1 * tape.gradient(loss, w))
                changes.append(w - server)
        server.assign_add(tf.add_n(changes) / len(devices))

    number = 4 * len(devices)
    inputs = {"x": sample(number, _UNITS), "y": sample(number, _UNITS, seed=1)}
    found = harness.verify(turn, inputs=inputs, devices=devices, variables=[server, *clients])
    assert found.passed, found
