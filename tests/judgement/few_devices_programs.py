"""Programs of several fields in which a later step, a second batch or a head is on too few devices; and right ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from shard_programs import Program

from harness.devices.device import Devices
from harness.faults.samples import sample


def _variable(*shape: int, seed: int = 0) -> Any:
    import tensorflow as tf

    return tf.Variable(sample(*shape, seed=seed) / 4)


def second_epoch_of_clients(devices: Devices, wrong: bool) -> Program:
    """Each client takes two steps on its rows, the second of them in no scope."""
    import tensorflow as tf

    weights = _variable(5, 1)

    def stepped(own: Any, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(own)
            loss = tf.reduce_mean((tf.matmul(x, own) - y) ** 2)
        return own - 0.1 * tape.gradient(loss, own)

    def program(x: Any, y: Any, first: list[str | None], second: list[str | None]) -> Any:
        found = []
        for one, two, rows, labels in zip(first, second, tf.split(x, 4), tf.split(y, 4), strict=True):
            with tf.device(one):
                own = stepped(weights + 0.0, rows, labels)
            with tf.device(two):
                found.append(stepped(own, rows, labels))
        return tf.add_n(found)

    def parallel(x: Any, y: Any) -> Any:
        names = [device.name for device in devices]
        return program(x, y, [*names], [None] * 4 if wrong else [*names])

    def reference(x: Any, y: Any) -> Any:
        return program(x, y, [None] * 4, [None] * 4)

    return Program(parallel, reference, {"x": sample(8, 5), "y": sample(8, 1)})


def validation_in_no_scope(devices: Devices, wrong: bool) -> Program:
    """The rows for training are shared out, and those for validation are not."""
    import tensorflow as tf

    weights = _variable(8, 4)

    def parallel(x: Any, held: Any) -> Any:
        made, errors = [], [tf.matmul(held, weights)] if wrong else []
        for device, rows, others in zip(devices, tf.split(x, 4), tf.split(held, 4), strict=True):
            with tf.device(device.name):
                made.append(tf.matmul(rows, weights))
                if not wrong:
                    errors.append(tf.matmul(others, weights))
        return tf.concat(made, 0), tf.concat(errors, 0)

    def reference(x: Any, held: Any) -> Any:
        return tf.matmul(x, weights), tf.matmul(held, weights)

    return Program(parallel, reference, {"x": sample(8, 8), "held": sample(8, 8, seed=1)})


def heads_with_weights_of_their_own(devices: Devices, wrong: bool) -> Program:
    """Four heads on two of four devices, and two rows: their number does not say how many devices have work."""
    import tensorflow as tf

    heads = [_variable(6, 4, seed=index) for index in range(4)]

    def parallel(x: Any) -> Any:
        made = []
        for index, head in enumerate(heads):
            with tf.device(devices[min(index, 1) if wrong else index].name):
                made.append(tf.nn.softmax(tf.matmul(x, head)))
        return tf.concat(made, 1)

    def reference(x: Any) -> Any:
        return tf.concat([tf.nn.softmax(tf.matmul(x, head)) for head in heads], 1)

    return Program(parallel, reference, {"x": sample(2, 6)})


#: Each with the kind of its finding.
PAIRS: dict[Callable[[Devices, bool], Program], str] = {
    second_epoch_of_clients: "op-placement",
    validation_in_no_scope: "op-placement",
    heads_with_weights_of_their_own: "unused-device",
}


def chunks_before_stages(devices: Devices) -> Program:
    """The first stage works in as many chunks as there are devices, and each of the others does much less."""
    import tensorflow as tf

    shapes = ((8, 32), (32, 8), (8, 8), (8, 3))
    weights = [_variable(*shape, seed=index) for index, shape in enumerate(shapes)]

    def parallel(x: Any) -> Any:
        with tf.device(devices[0].name):
            made = tf.concat([tf.nn.relu(tf.matmul(rows, weights[0])) for rows in tf.split(x, 4)], 0)
        for device, each in zip(devices[1:], weights[1:], strict=True):
            with tf.device(device.name):
                made = tf.nn.relu(tf.matmul(made, each))
        return made

    def reference(x: Any) -> Any:
        for each in weights:
            x = tf.nn.relu(tf.matmul(x, each))
        return x

    return Program(parallel, reference, {"x": sample(16, 8)})


def four_parts_on_three_devices(devices: Devices) -> Program:
    """The fourth device has the layer on the joined rows, so the fourth part is on the first one."""
    import tensorflow as tf

    encoder, decoder = _variable(8, 32, seed=1), _variable(32, 3, seed=2)

    def parallel(x: Any) -> Any:
        made = []
        for index, rows in enumerate(tf.split(x, 4)):
            with tf.device(devices[index % 3].name):
                made.append(tf.nn.relu(tf.matmul(rows, encoder)))
        with tf.device(devices[3].name):
            return tf.matmul(tf.concat(made, 0), decoder)

    def reference(x: Any) -> Any:
        return tf.matmul(tf.nn.relu(tf.matmul(x, encoder)), decoder)

    return Program(parallel, reference, {"x": sample(16, 8)})


def counters_of_clients(devices: Devices) -> Program:
    """The number of each client's steps is on the host, as that of an optimizer which is built in no scope is."""
    import tensorflow as tf

    clients, counts = [], [tf.Variable(0) for _ in devices]
    for index, device in enumerate(devices):
        with tf.device(device.name):
            clients.append(_variable(5, 1, seed=index))

    def program(x: Any, places: list[str | None]) -> None:
        for place, client, count, rows in zip(places, clients, counts, tf.split(x, 4), strict=True):
            with tf.device(place):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.matmul(rows, client) ** 2)
                client.assign_sub(0.1 * tape.gradient(loss, client))
                count.assign(count + 1)

    def parallel(x: Any) -> None:
        program(x, [device.name for device in devices])

    return Program(parallel, lambda x: program(x, [None] * 4), {"x": sample(8, 5)})


def experts_of_chosen_rows(devices: Devices) -> Program:
    """How many rows each expert gets is not known before it runs; who gets which is chosen in no scope."""
    import tensorflow as tf

    gate, experts = _variable(6, 4), [_variable(6, 6, seed=index + 1) for index in range(4)]

    def program(x: Any, places: list[str | None]) -> Any:
        chosen = tf.argmax(tf.nn.softmax(tf.matmul(x, gate)), 1)
        made = tf.zeros_like(x)
        for index, (place, expert) in enumerate(zip(places, experts, strict=True)):
            with tf.device(place):
                rows = tf.where(chosen == index)
                result = tf.matmul(tf.gather(x, rows[:, 0]), expert)
            made = tf.tensor_scatter_nd_add(made, rows, result)
        return made

    def parallel(x: Any) -> Any:
        return program(x, [device.name for device in devices])

    return Program(parallel, lambda x: program(x, [None] * 4), {"x": np.asarray(sample(16, 6))}, modes=("graph",))


CLEAN: tuple[Callable[[Devices], Program], ...] = (
    chunks_before_stages,
    four_parts_on_three_devices,
    counters_of_clients,
    experts_of_chosen_rows,
)
