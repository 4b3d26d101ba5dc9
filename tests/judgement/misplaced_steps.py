"""Steps on a shard, or of a client, away from its device, where no cut says whose they are; with their clean twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from shard_programs import Program

from harness.devices.device import Devices
from harness.faults.samples import sample


def _variable(device: str | None, *shape: int, seed: int = 0) -> Any:
    import tensorflow as tf

    with tf.device(device):
        return tf.Variable(sample(*shape, seed=seed) / 4)


def _encoder(rows: Any, weights: Any) -> Any:
    import tensorflow as tf

    return tf.matmul(tf.nn.relu(tf.matmul(rows, weights[0])), weights[1])


def captions_in_no_scope(devices: Devices, wrong: bool) -> Program:
    """The parts of the second argument meet those of the first only where all of them are joined."""
    import tensorflow as tf

    of_images = [_variable(None, 8, 24, seed=1), _variable(None, 24, 4, seed=2)]
    of_texts = [_variable(None, 6, 24, seed=3), _variable(None, 24, 4, seed=4)]

    def parallel(image: Any, text: Any) -> Any:
        images, texts = [], []
        for device, rows, words in zip(devices, tf.split(image, 4), tf.split(text, 4), strict=True):
            with tf.device(device.name):
                images.append(_encoder(rows, of_images))
            with tf.device(None if wrong else device.name):
                texts.append(_encoder(words, of_texts))
        every, results = tf.concat(texts, 0), []
        for device, own in zip(devices, images, strict=True):
            with tf.device(device.name):
                results.append(tf.nn.log_softmax(tf.matmul(own, every, transpose_b=True)))
        return tf.concat(results, 0)

    def reference(image: Any, text: Any) -> Any:
        products = tf.matmul(_encoder(image, of_images), _encoder(text, of_texts), transpose_b=True)
        return tf.nn.log_softmax(products)

    return Program(parallel, reference, {"image": sample(8, 8), "text": sample(8, 6, seed=1)})


def edges_of_the_second_layer(devices: Devices, wrong: bool) -> Program:
    """Each shard of the edges looks up nodes that all shards made: the rows are those of its edges."""
    import tensorflow as tf

    layers = [_variable(None, 8, 8, seed=seed) for seed in range(2)]

    def messages(nodes: Any, weights: Any, sources: Any, targets: Any) -> Any:
        return tf.math.unsorted_segment_sum(tf.matmul(tf.gather(nodes, sources), weights), targets, 6)

    def parallel(nodes: Any, sources: Any, targets: Any) -> Any:
        for number, weights in enumerate(layers):
            results = []
            for device, own, other in zip(devices, tf.split(sources, 4), tf.split(targets, 4), strict=True):
                with tf.device(devices[0].name if wrong and number == 1 else device.name):
                    results.append(messages(nodes, weights, own, other))
            nodes = tf.nn.relu(tf.add_n(results))
        return nodes

    def reference(nodes: Any, sources: Any, targets: Any) -> Any:
        for weights in layers:
            nodes = tf.nn.relu(messages(nodes, weights, sources, targets))
        return nodes

    edges = np.arange(12) % 6
    return Program(parallel, reference, {"nodes": sample(6, 8), "sources": edges, "targets": edges[::-1].copy()})


def queries_on_the_first(devices: Devices, wrong: bool) -> Program:
    """Queries of a shard and keys of all: the rows are those of the queries."""
    import tensorflow as tf

    weights = [_variable(None, 8, 4, seed=seed) for seed in range(2)]

    def parallel(x: Any) -> Any:
        queries, keys, results = [], [], []
        for device, rows in zip(devices, tf.split(x, 4), strict=True):
            with tf.device(device.name):
                queries.append(tf.matmul(rows, weights[0]))
                keys.append(tf.matmul(rows, weights[1]))
        every = tf.concat(keys, 0)
        for device, own in zip(devices, queries, strict=True):
            with tf.device(devices[0].name if wrong else device.name):
                results.append(tf.nn.softmax(tf.matmul(own, every, transpose_b=True)))
        return tf.concat(results, 0)

    def reference(x: Any) -> Any:
        return tf.nn.softmax(tf.matmul(tf.matmul(x, weights[0]), tf.matmul(x, weights[1]), transpose_b=True))

    return Program(parallel, reference, {"x": sample(32, 8)})


def teacher_of_the_whole_batch(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    student, teacher = _variable(None, 8, 4, seed=1), [_variable(None, 8, 24, seed=2), _variable(None, 24, 4, seed=3)]

    def parallel(x: Any, y: Any) -> Any:
        goals = tf.split(_encoder(y, teacher), 4) if wrong else None
        results = []
        for number, (device, rows, other) in enumerate(zip(devices, tf.split(x, 4), tf.split(y, 4), strict=True)):
            with tf.device(device.name):
                goal = goals[number] if goals else _encoder(other, teacher)
                results.append((tf.matmul(rows, student) - goal) ** 2)
        return tf.concat(results, 0)

    def reference(x: Any, y: Any) -> Any:
        return (tf.matmul(x, student) - _encoder(y, teacher)) ** 2

    return Program(parallel, reference, {"x": sample(8, 8), "y": sample(8, 8, seed=1)})


def _parts_of_a_table(devices: Devices, place: Callable[[int], str | None]) -> Program:
    import tensorflow as tf

    tables = [_variable(device.name, 4, 8, seed=seed) for seed, device in enumerate(devices)]
    weights = _variable(None, 8, 8, seed=9)

    def found(table: Any, keys: Any, number: int) -> Any:
        own = tf.equal(keys // 4, number)[:, None]
        return tf.where(own, tf.tanh(tf.matmul(tf.gather(table, keys % 4), weights)), 0.0)

    def parallel(keys: Any) -> Any:
        results = []
        for number, table in enumerate(tables):
            with tf.device(place(number)):
                results.append(found(table, keys, number))
        return tf.add_n(results)

    def reference(keys: Any) -> Any:
        return tf.add_n([found(table, keys, number) for number, table in enumerate(tables)])

    return Program(parallel, reference, {"keys": np.array([0, 5, 10, 15, 3, 8])})


def part_of_a_table_in_no_scope(devices: Devices, wrong: bool) -> Program:
    return _parts_of_a_table(devices, lambda number: None if wrong and number == 2 else devices[number].name)


def part_of_a_table_on_a_neighbour(devices: Devices, wrong: bool) -> Program:
    return _parts_of_a_table(devices, lambda number: devices[1 if wrong and number == 2 else number].name)


def averages_of_weights_on_the_first(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    students = [_variable(device.name, 8, 4, seed=seed) for seed, device in enumerate(devices)]
    teachers = [_variable(device.name, 8, 4, seed=seed) for seed, device in enumerate(devices)]

    def program(x: Any, device_of: Callable[[int], str | None], of_average: Callable[[int], str | None]) -> Any:
        losses = []
        for number, rows in enumerate(tf.split(x, 4)):
            with tf.device(device_of(number)):
                with tf.GradientTape() as tape:
                    apart = tf.matmul(rows, students[number]) - tf.matmul(rows, teachers[number]) + 1.0
                    losses.append(tf.reduce_mean(apart**2))
                students[number].assign_sub(tape.gradient(losses[-1], students[number]))
        for number in range(4):
            with tf.device(of_average(number)):
                teachers[number].assign(0.9 * teachers[number] + 0.1 * students[number])
        return tf.stack(losses)

    def parallel(x: Any) -> Any:
        names = [device.name for device in devices]
        return program(x, names.__getitem__, lambda number: names[0 if wrong else number])

    return Program(parallel, lambda x: program(x, lambda _: None, lambda _: None), {"x": sample(8, 8)})


def control_variates_on_the_next(devices: Devices, wrong: bool) -> Program:
    """The server's weights, which all of them read, are on the first device: they say nothing."""
    import tensorflow as tf

    server, steps = _variable(devices[0].name, 8, 4, seed=1), 2
    clients = [_variable(device.name, 8, 4, seed=1) for device in devices]
    controls = [_variable(device.name, 8, 4, seed=2 + seed) for seed, device in enumerate(devices)]

    def program(x: Any, device_of: Callable[[int], str | None], of_control: Callable[[int], str | None]) -> Any:
        for number, rows in enumerate(tf.split(x, 4)):
            with tf.device(device_of(number)):
                own = clients[number]
                own.assign(server)
                for _ in range(steps):
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_mean((tf.matmul(rows, own) - 1.0) ** 2)
                    own.assign_sub(0.1 * (tape.gradient(loss, own) - controls[number]))
            with tf.device(of_control(number)):
                controls[number].assign(controls[number] + (server - clients[number]) / (0.1 * steps))
        server.assign(tf.add_n([client.read_value() for client in clients]) / 4.0)
        return server.read_value()

    def parallel(x: Any) -> Any:
        names = [device.name for device in devices]
        return program(x, names.__getitem__, lambda number: names[(number + wrong) % 4])

    return Program(parallel, lambda x: program(x, lambda _: None, lambda _: None), {"x": sample(8, 8)})


PAIRS: dict[str, Callable[[Devices, bool], Program]] = {
    make.__name__: make
    for make in (
        captions_in_no_scope,
        edges_of_the_second_layer,
        queries_on_the_first,
        teacher_of_the_whole_batch,
        part_of_a_table_in_no_scope,
        part_of_a_table_on_a_neighbour,
        averages_of_weights_on_the_first,
        control_variates_on_the_next,
    )
}


def numbers_of_each_shard_in_no_scope(devices: Devices) -> Program:
    """Little work on what the shards made, though it is a large part of the work on the second argument alone."""
    import tensorflow as tf

    weights = _variable(None, 8, 4, seed=1)

    def sums(rows: Any, mask: Any) -> Any:
        return tf.reduce_sum(tf.abs(tf.matmul(rows, weights)) * mask[:, None]), tf.reduce_sum(mask)

    def program(x: Any, mask: Any, places: list[str | None]) -> Any:
        results = []
        for place, rows, own in zip(places, tf.split(x, 4), tf.split(mask, 4), strict=True):
            with tf.device(place):
                results.append(sums(rows, own))
        return tf.stack([total / tf.maximum(count, 1.0) for total, count in results])

    def parallel(x: Any, mask: Any) -> Any:
        return program(x, mask, [device.name for device in devices])

    return Program(parallel, lambda x, mask: program(x, mask, [None] * 4), {"x": sample(8, 8), "mask": abs(sample(8))})


def weights_pulled_to_a_server(devices: Devices) -> Program:
    """Clients and the centre that they are pulled to change by the same difference: it belongs to neither."""
    import tensorflow as tf

    centre = _variable(devices[0].name, 8, 4, seed=1)
    clients = [_variable(device.name, 8, 4, seed=2 + seed) for seed, device in enumerate(devices)]

    def program(x: Any, places: list[str | None]) -> Any:
        results = []
        for place, client, rows in zip(places, clients, tf.split(x, 4), strict=True):
            with tf.device(place):
                results.append(tf.matmul(rows, client))
        for client in clients:
            with tf.device(places[0]):
                difference = 0.1 * (client - centre)
                client.assign_sub(difference)
                centre.assign_add(difference)
        return tf.concat(results, 0)

    def parallel(x: Any) -> Any:
        return program(x, [device.name for device in devices])

    return Program(parallel, lambda x: program(x, [None] * 4), {"x": sample(8, 8)})


def another_batch_in_chunks(devices: Devices) -> Program:
    """As many chunks as shards, which no shard has anything to do with."""
    import tensorflow as tf

    weights = _variable(None, 8, 4, seed=1)

    def parallel(x: Any, other: Any) -> Any:
        results = []
        for device, rows in zip(devices, tf.split(x, 4), strict=True):
            with tf.device(device.name):
                results.append(tf.matmul(rows, weights))
        squares = [tf.reduce_sum(tf.matmul(rows, weights) ** 2) for rows in tf.split(other, 4)]
        return tf.concat(results, 0), tf.add_n(squares)

    def reference(x: Any, other: Any) -> Any:
        return tf.matmul(x, weights), tf.reduce_sum(tf.matmul(other, weights) ** 2)

    return Program(parallel, reference, {"x": sample(8, 8), "other": sample(8, 8, seed=1)})


CLEAN: tuple[Callable[[Devices], Program], ...] = (
    numbers_of_each_shard_in_no_scope,
    weights_pulled_to_a_server,
    another_batch_in_chunks,
)
