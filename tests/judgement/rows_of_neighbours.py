"""Programs whose parts read a few rows of their neighbours, or that join their results, with their clean twins."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from shard_programs import Program

from harness.devices.device import Devices
from harness.faults.samples import sample


def _variable(*shape: int, seed: int = 0) -> Any:
    import tensorflow as tf

    return tf.Variable(sample(*shape, seed=seed) / 4)


def solver_of_strips_on_the_first(devices: Devices, wrong: bool) -> Program:
    """Each strip of a field is joined with a row of each neighbour; the first device smooths all of them."""
    import tensorflow as tf

    edge = np.zeros((1, 6), "float32")

    def smoothed(strip: Any, above: Any, below: Any) -> Any:
        for _ in range(2):
            wide = tf.concat([above, strip, below], 0)
            strip = 0.5 * strip + 0.25 * (wide[:-2] + wide[2:])
        return strip

    def program(field: Any, places: list[str | None], solvers: list[str | None]) -> Any:
        strips = tf.split(field, len(places))
        for _ in range(2):
            above, below = [edge, *(strip[-1:] for strip in strips[:-1])], [*(strip[:1] for strip in strips[1:]), edge]
            made = []
            for place, solver, strip, *sides in zip(places, solvers, strips, above, below, strict=True):
                with tf.device(place):
                    driven = strip + 0.1 * tf.exp(-strip * strip)
                with tf.device(solver):
                    made.append(smoothed(driven, *sides))
            strips = made
        return tf.concat(strips, 0)

    names: list[str | None] = [device.name for device in devices]
    nowhere: list[str | None] = [None] * len(names)

    def parallel(field: Any) -> Any:
        return program(field, names, [names[0]] * len(names) if wrong else names)

    return Program(parallel, lambda field: program(field, nowhere, nowhere), {"field": sample(16, 6)})


def messages_after_the_scope(devices: Devices, wrong: bool) -> Program:
    """The messages along the edges of each part of a graph are made by functions that are called after the scopes."""
    import tensorflow as tf

    message, update = _variable(12, 8, seed=1), _variable(8, 6, seed=2)
    ends = np.random.default_rng(0).integers(0, 8, size=(2, 24)).astype("int32")
    ends[1].sort()

    def messages(nodes: Any, edges: Any) -> Any:
        return tf.nn.relu(tf.matmul(tf.concat([tf.gather(nodes, each) for each in edges], 1), message))

    def parallel(nodes: Any) -> Any:
        own = [ends[:, ends[1] * len(devices) // 8 == part] for part in range(len(devices))]
        later, sent, made = [], [], []
        for device, edges in zip(devices, own, strict=True):
            with tf.device(device.name):
                later.append(partial(messages, nodes, edges))
                sent += [] if wrong else [later[-1]()]
        sent = sent or [each() for each in later]
        for part, (device, edges) in enumerate(zip(devices, own, strict=True)):
            size = 8 // len(devices)
            with tf.device(device.name):
                summed = tf.math.unsorted_segment_sum(sent[part], edges[1] - part * size, size)
                made.append(tf.tanh(tf.matmul(summed, update)))
        return tf.concat(made, 0)

    def reference(nodes: Any) -> Any:
        return tf.tanh(tf.matmul(tf.math.unsorted_segment_sum(messages(nodes, ends), ends[1], 8), update))

    return Program(parallel, reference, {"nodes": sample(8, 6)})


def heads_on_joined_rows(devices: Devices, wrong: bool) -> Program:
    """The features are made in the scopes, and the heads, which are most of the model, after them."""
    import tensorflow as tf

    body, hidden, out = _variable(6, 8, seed=1), _variable(8, 32, seed=2), _variable(32, 4, seed=3)

    def features(rows: Any) -> Any:
        return tf.tanh(tf.matmul(rows, body))

    def heads(rows: Any) -> Any:
        return tf.matmul(tf.nn.relu(tf.matmul(rows, hidden)), out)

    def parallel(x: Any) -> Any:
        made = []
        for device, rows in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                made.append(features(rows) if wrong else heads(features(rows)))
        return heads(tf.concat(made, 0)) if wrong else tf.concat(made, 0)

    return Program(parallel, lambda x: heads(features(x)), {"x": sample(16, 6)})


def sums_of_replicas_on_the_first(devices: Devices, wrong: bool) -> Program:
    """Each replica adds up the gradients of its micro-batches; all that they are added to is on one device."""
    import tensorflow as tf

    weights, sums = _variable(6, 4), []
    for device in devices:
        with tf.device((devices[0] if wrong else device).name):
            sums.append(tf.Variable(np.zeros((6, 4), "float32")))

    def program(x: Any, places: list[str | None]) -> None:
        for place, total, rows in zip(places, sums, tf.split(x, len(places)), strict=True):
            with tf.device(place):
                for few in tf.split(rows, 2):
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_mean(tf.tanh(tf.matmul(few, weights)))
                    total.assign_add(tape.gradient(loss, weights))
        weights.assign_sub(0.1 * tf.add_n([tf.convert_to_tensor(total) for total in sums]))

    names: list[str | None] = [device.name for device in devices]
    return Program(lambda x: program(x, names), lambda x: program(x, [None] * len(names)), {"x": sample(16, 6)})


PAIRS: dict[Callable[[Devices, bool], Program], str] = {
    solver_of_strips_on_the_first: "op-placement",
    messages_after_the_scope: "op-placement",
    heads_on_joined_rows: "op-placement",
    sums_of_replicas_on_the_first: "variable-placement",
}


def embeddings_before_a_network(devices: Devices) -> Program:
    """Each device looks up one feature of all rows; the network on all features is no part of any."""
    import tensorflow as tf

    tables = []
    for index, device in enumerate(devices):
        with tf.device(device.name):
            tables.append(_variable(9, 8, seed=index))
    hidden, out = _variable(8 * len(devices), 16, seed=8), _variable(16, 2, seed=9)

    def network(parts: Any) -> Any:
        return tf.matmul(tf.nn.relu(tf.matmul(tf.concat(parts, 1), hidden)), out)

    def parallel(ids: Any) -> Any:
        parts = []
        for index, (device, table) in enumerate(zip(devices, tables, strict=True)):
            with tf.device(device.name):
                parts.append(tf.tanh(tf.gather(table, ids[:, index])))
        return network(parts)

    def reference(ids: Any) -> Any:
        return network([tf.tanh(tf.gather(table, ids[:, index])) for index, table in enumerate(tables)])

    ids = np.random.default_rng(0).integers(0, 9, size=(16, len(devices))).astype("int32")
    return Program(parallel, reference, {"ids": ids})


def a_stencil_of_small_strips(devices: Devices) -> Program:
    """The rows for the neighbours are cut out in no scope, and are as much as a tenth of all that is computed."""
    import tensorflow as tf

    def program(field: Any, places: list[str | None]) -> Any:
        strips = tf.split(field, len(places))
        for _ in range(3):
            around = [strips[-1][-1:], *(strip[-1:] for strip in strips[:-1])]
            below = [*(strip[:1] for strip in strips[1:]), strips[0][:1]]
            made = []
            for place, strip, *sides in zip(places, strips, around, below, strict=True):
                with tf.device(place):
                    wide = tf.concat([sides[0], strip, sides[1]], 0)
                    made.append(0.5 * (wide[:-2] + wide[2:]))
            strips = made
        return tf.concat(strips, 0)

    names: list[str | None] = [device.name for device in devices]
    nowhere: list[str | None] = [None] * len(names)
    return Program(lambda field: program(field, names), lambda field: program(field, nowhere), {"field": sample(8, 6)})


CLEAN: tuple[Callable[[Devices], Program], ...] = (embeddings_before_a_network, a_stencil_of_small_strips)
