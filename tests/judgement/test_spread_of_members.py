"""Members, statistics, copies of weights and updates, each on the device that it belongs on; and away from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from two_device_case import Case, judged

from harness import Devices
from harness.faults.samples import sample

pytestmark = pytest.mark.devices(min=2)


def _variable(device: Any, *shape: int, seed: int = 0) -> Any:
    with tf.device(None if device is None else device.name):
        return tf.Variable(sample(*shape, seed=seed) / 4)


def _strategy(devices: Devices, places: list[int]) -> Case:
    """Mirrored members of an evolution strategy: none has data of its own."""
    theta = _variable(None, 16, 16)

    def run(x: Any, scoped: bool) -> Any:
        scores, noises = [], []
        for number, place in enumerate(places):
            with tf.device(devices[place if scoped else 0].name):
                noise = tf.random.stateless_normal((16, 16), (number // 2, 5)) * (0.1 if number % 2 else -0.1)
                h = x
                for _ in range(3):
                    h = tf.tanh(tf.matmul(h, theta + noise))
                scores.append(tf.reduce_mean(h))
            noises.append(noise)
        theta.assign_add(tf.add_n([score * noise for score, noise in zip(scores, noises, strict=True)]))
        return tf.stack(scores)

    return Case(lambda x: run(x, True), lambda x: run(x, False), {"x": sample(12, 16)}, [theta])


def mirrored(devices: Devices, wrong: bool) -> Case:
    """Three quarters of the members are on the first device."""
    return _strategy(devices, [0, 0, 0, 1, 0, 0, 0, 1] if wrong else [0, 1, 0, 1, 0, 1, 0, 1])


def five(devices: Devices, wrong: bool) -> Case:
    """An odd number of members cannot be shared out evenly."""
    return _strategy(devices, [0, 0, 0, 0, 1] if wrong else [0, 0, 0, 1, 1])


def balanced(devices: Devices, wrong: bool) -> Case:
    """One device has fewer members, and the layers that are no member's."""
    shared, members = _variable(None, 16, 16), [_variable(None, 16, 16, seed=each) for each in range(4)]
    places = [0, 0, 0, 1]

    def run(x: Any, scoped: bool) -> Any:
        def on(place: int) -> Any:
            return tf.device(devices[place if scoped else 0].name)

        with on(0 if wrong else 1):
            for _ in range(2):
                x = tf.nn.relu(tf.matmul(x, shared))
        results = []
        for weights, place in zip(members, places, strict=True):
            with on(place):
                results.append(tf.nn.softmax(tf.matmul(x, weights)))
        return tf.add_n(results)

    return Case(lambda x: run(x, True), lambda x: run(x, False), {"x": sample(12, 16)}, [])


def experts(devices: Devices, wrong: bool) -> Case:
    """Experts read what the gate reads, and each is multiplied by a column of what the gate makes."""
    layers, gate = [_variable(None, 12, 12, seed=each) for each in range(4)], _variable(None, 12, 4, seed=9)

    def run(x: Any, scoped: bool) -> Any:
        share, results = tf.nn.softmax(tf.matmul(x, gate)), []
        for number, weights in enumerate(layers):
            with tf.device(devices[(number // 3 if wrong else number // 2) if scoped else 0].name):
                results.append(share[:, number : number + 1] * tf.nn.gelu(tf.matmul(x, weights)))
        return tf.add_n(results)

    return Case(lambda x: run(x, True), lambda x: run(x, False), {"x": sample(24, 12)}, [])


def split_table(devices: Devices, wrong: bool) -> Case:
    """A table in parts, one on each device: what finds the rows is the first one's."""
    tables = [_variable(device, 3, 4, seed=number) for number, device in enumerate(devices[:2])]

    def parallel(ids: Any) -> Any:
        with tf.device(devices[0].name):
            if wrong:
                parts = tf.dynamic_partition(ids % 3, ids // 3, 2)
                places = tf.dynamic_partition(tf.range(8), ids // 3, 2)
                rows = [tf.gather(tf.convert_to_tensor(table), part) for table, part in zip(tables, parts, strict=True)]
                return tf.dynamic_stitch(places, rows)
        return tf.nn.embedding_lookup(tables, ids)

    def reference(ids: Any) -> Any:
        return tf.gather(tf.concat([table.read_value() for table in tables], 0), ids)

    return Case(parallel, reference, {"ids": np.array([0, 3, 2, 4, 1, 3, 0, 4], "int32")}, [])


def control_variates(devices: Devices, wrong: bool) -> Case:
    """Each client has a control variate; the first device computes the new ones of all."""
    server, common = _variable(None, 8, 8), _variable(None, 8, 8, seed=1)
    own = [_variable(device, 8, 8, seed=2 + number) for number, device in enumerate(devices[:2])]

    def run(rows: Any, scoped: bool) -> Any:
        def on(number: int) -> Any:
            return tf.device(devices[number if scoped else 0].name)

        start, shared = tf.convert_to_tensor(server), tf.convert_to_tensor(common)
        after, new = [], []
        for number, (part, variate) in enumerate(zip(rows, own, strict=True)):
            with on(number):
                weights = start
                for _ in range(2):
                    slope = tf.matmul(part, tf.matmul(part, weights), transpose_a=True) / 6.0
                    weights -= 0.1 * (slope - variate + shared)
                after.append(weights)
            with on(0 if wrong else number):
                new.append(variate - shared + (start - weights) / 0.2)
        common.assign_add(tf.add_n([value - variate for value, variate in zip(new, own, strict=True)]) / 2.0)
        for variate, value in zip(own, new, strict=True):
            variate.assign(value)
        server.assign(tf.add_n(after) / 2.0)

    rows = [sample(6, 8, seed=7), sample(6, 8, seed=8)]
    return Case(lambda rows: run(rows, True), lambda rows: run(rows, False), {"rows": rows}, [server, common, *own])


def mixed_by_the_server(devices: Devices, wrong: bool) -> Case:
    """The first device moves the weights of each client to the mean of all; or to zero, which needs no server."""
    own = [_variable(device, 8, 8, seed=2 + number) for number, device in enumerate(devices[:2])]

    def run(rows: Any, scoped: bool) -> Any:
        after = []
        for number, (part, weights) in enumerate(zip(rows, own, strict=True)):
            with tf.device(devices[number if scoped else 0].name):
                after.append(weights - 0.1 * tf.matmul(part, tf.matmul(part, weights), transpose_a=True))
        with tf.device(devices[0].name):
            mean = tf.add_n(after) / 2.0
            new = [each - 0.1 * (each - (0.0 if wrong else mean)) for each in after]
        for weights, value in zip(own, new, strict=True):
            weights.assign(value)
        return tf.reduce_sum(mean)

    rows = [sample(6, 8, seed=7), sample(6, 8, seed=8)]
    return Case(lambda rows: run(rows, True), lambda rows: run(rows, False), {"rows": rows}, own)


def copies_in_half_precision(devices: Devices, wrong: bool) -> Case:
    """The first device makes a copy of the weights for each shard."""
    layers = [_variable(None, 16, 16, seed=seed) for seed in range(3)]

    def halves() -> list[Any]:
        return [tf.cast(weights, tf.bfloat16) for weights in layers]

    def model(x: Any, weights: list[Any]) -> Any:
        x = tf.cast(x, tf.bfloat16)
        for each in weights:
            x = tf.nn.relu(tf.matmul(x, each))
        return tf.cast(x, tf.float32)

    def parallel(x: Any) -> Any:
        results = []
        for device, part in zip(devices[:2], tf.split(x, 2), strict=True):
            with tf.device((devices[0] if wrong else device).name):
                weights = halves()
            with tf.device(device.name):
                results.append(model(part, weights))
        return tf.concat(results, 0)

    return Case(parallel, lambda x: model(x, halves()), {"x": sample(8, 16)}, [])


def cast_once(devices: Devices, wrong: bool) -> Case:
    """The first device makes one copy of the weights for all."""
    case = copies_in_half_precision(devices, wrong)
    weights = _variable(None, 16, 16)

    def parallel(x: Any) -> Any:
        with tf.device(devices[0].name):
            half = tf.cast(weights, tf.bfloat16)
        results = []
        for device, part in zip(devices[:2], tf.split(x, 2), strict=True):
            with tf.device(device.name):
                results.append(tf.cast(tf.matmul(tf.cast(part, tf.bfloat16), half), tf.float32))
        return tf.concat(results, 0)

    def reference(x: Any) -> Any:
        return tf.cast(tf.matmul(tf.cast(x, tf.bfloat16), tf.cast(weights, tf.bfloat16)), tf.float32)

    return case if wrong else case._replace(parallel=parallel, reference=reference)


def normalised(devices: Devices, wrong: bool) -> Case:
    """Statistics of all shards, with which each goes on, are taken of the shards in no scope."""
    kernel = _variable(None, 3, 3, 3, 8)

    def parallel(x: Any) -> Any:
        made, sums, squares = [], [], []
        for device, part in zip(devices[:2], tf.split(x, 2), strict=True):
            with tf.device(device.name):
                made.append(tf.nn.conv2d(part, kernel, 1, "SAME"))
            with tf.device(None if wrong else device.name):
                sums.append(tf.reduce_sum(made[-1], (0, 1, 2)))
                squares.append(tf.reduce_sum(made[-1] * made[-1], (0, 1, 2)))
        mean = tf.add_n(sums) / 288.0
        scale = tf.math.rsqrt(tf.add_n(squares) / 288.0 - mean * mean + 0.001)
        results = []
        for device, part in zip(devices[:2], made, strict=True):
            with tf.device(device.name):
                results.append(tf.nn.relu((part - mean) * scale))
        return tf.concat(results, 0)

    return Case(parallel, _normalised(kernel), {"x": sample(8, 6, 6, 3)}, [])


def _normalised(kernel: Any) -> Callable[..., Any]:
    def reference(x: Any) -> Any:
        made = tf.nn.conv2d(x, kernel, 1, "SAME")
        mean = tf.reduce_sum(made, (0, 1, 2)) / 288.0
        scale = tf.math.rsqrt(tf.reduce_sum(made * made, (0, 1, 2)) / 288.0 - mean * mean + 0.001)
        return tf.nn.relu((made - mean) * scale)

    return reference


def measured(devices: Devices, wrong: bool) -> Case:
    """A loss of each shard's results in no scope, with which no shard goes on, copies what is joined anyway."""
    case = normalised(devices, wrong)
    kernel = _variable(None, 3, 3, 3, 8)

    def parallel(x: Any) -> Any:
        made = []
        for device, part in zip(devices[:2], tf.split(x, 2), strict=True):
            with tf.device(device.name):
                made.append(tf.nn.conv2d(part, kernel, 1, "SAME"))
        return tf.concat(made, 0), tf.add_n([tf.reduce_sum(each * each) for each in made])

    def reference(x: Any) -> Any:
        made = tf.nn.conv2d(x, kernel, 1, "SAME")
        return made, tf.reduce_sum(made * made)

    return case if wrong else case._replace(parallel=parallel, reference=reference)


CASES = [
    (mirrored, "crowd on one device"),
    (five, "crowd on one device"),
    (balanced, "crowd on one device"),
    (experts, "crowd on one device"),
    (split_table, "no op of the program ran on"),
    (control_variates, "one of them computes the updates of all"),
    (mixed_by_the_server, "one of them computes the updates of all|device scope that is not the shard's"),
    (copies_in_half_precision, "a copy of weights for one device"),
    (cast_once, "a copy of weights for one device"),
    (normalised, "outside of the shard's device scope"),
    (measured, "outside of the shard's device scope"),
]


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize(("make", "cause"), CASES, ids=[make.__name__ for make, _ in CASES])
def test_what_is_away_from_its_device_is_found_and_its_clean_twin_passes(
    devices: Devices, make: Callable[..., Case], cause: str, mode: str
) -> None:
    judged(devices, make, cause, [mode])
