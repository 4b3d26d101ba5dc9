"""Programs whose devices change places for a step on each shard, where ``wrong``, and right ones that look alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from shard_programs import Program, layers

from harness.devices.device import Devices
from harness.faults.samples import sample

#: The device of a shard, for the first step or the second one.
_Place = Callable[[int, int], str | None]


def _placed(
    devices: Devices, program: Callable[..., Any], inputs: dict[str, Any], further: Callable[[int, int], int]
) -> Program:
    """The program, whose step is ``further`` devices away from its shard; the reference is in no scope."""
    names = [device.name for device in devices]

    def place(number: int, step: int) -> str:
        return names[(number + further(number, step)) % len(names)]

    return Program(
        lambda **given: program(place, **given), lambda **given: program(lambda *_: None, **given), inputs, ("graph",)
    )


def _own(devices: Devices, *shape: int, seed: int = 0) -> list[Any]:
    """A variable on each device."""
    import tensorflow as tf

    made = []
    for number, device in enumerate(devices):
        with tf.device(device.name):
            made.append(tf.Variable(sample(*shape, seed=seed + number) / 2))
    return made


def second_phase_on_other_devices(devices: Devices, wrong: bool) -> Program:
    """All that is left to do moves on, as far as possible."""
    import tensorflow as tf

    first, second, _ = layers()

    def program(place: _Place, x: Any) -> Any:
        outputs = []
        for number, part in enumerate(tf.split(x, 4)):
            with tf.device(place(number, 0)):
                hidden = first(part)
            with tf.device(place(number, 1)):
                outputs.append(second(hidden))
        return tf.concat(outputs, 0)

    return _placed(devices, program, {"x": sample(8, 6)}, lambda number, step: wrong * step * (3 - 2 * number))


def items_on_the_next(devices: Devices, wrong: bool) -> Program:
    """The parts of two arguments meet one to one, and one of them is worked on elsewhere until then."""
    import tensorflow as tf

    first, second, both = layers()

    def program(place: _Place, user: Any, item: Any) -> Any:
        outputs = []
        for number, (one, other) in enumerate(zip(tf.split(user, 4), tf.split(item, 4), strict=True)):
            with tf.device(place(number, 0)):
                mine = first(one)
            with tf.device(place(number, 1)):
                theirs = both(other)
            with tf.device(place(number, 0)):
                outputs.append(tf.reduce_sum(mine * second(theirs), 1))
        return tf.concat(outputs, 0)

    inputs = {"user": sample(8, 6), "item": sample(8, 6, seed=3)}
    return _placed(devices, program, inputs, lambda _, step: wrong * step)


def second_epoch_on_the_next(devices: Devices, wrong: bool) -> Program:
    """What it needs is on the client's own device: its weights."""
    import tensorflow as tf

    weights = _own(devices, 6, 4)

    def program(place: _Place, x: Any, y: Any) -> Any:
        for number, (rows, goal) in enumerate(zip(tf.split(x, 4), tf.split(y, 4), strict=True)):
            for epoch in range(2):
                with tf.device(place(number, epoch)):
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_mean((tf.matmul(rows, weights[number]) - goal) ** 2)
                    weights[number].assign_sub(0.1 * tape.gradient(loss, weights[number]))
        return tf.add_n([each.read_value() for each in weights])

    return _placed(devices, program, {"x": sample(8, 6), "y": sample(8, 4, seed=2)}, lambda _, step: wrong * step)


def micro_batches_in_turn(devices: Devices, wrong: bool) -> Program:
    """The second half of each shard's rows is on the next device."""
    import tensorflow as tf

    _, _, both = layers()

    def program(place: _Place, x: Any) -> Any:
        outputs = []
        for number, part in enumerate(tf.split(x, 4)):
            for half, rows in enumerate(tf.split(part, 2)):
                with tf.device(place(number, half)):
                    outputs.append(both(rows))
        return tf.concat(outputs, 0)

    return _placed(devices, program, {"x": sample(16, 6)}, lambda _, step: wrong * step)


def state_of_a_sequence_in_turn(devices: Devices, wrong: bool) -> Program:
    """The states are at first made of a shape, which is no data of a shard."""
    import tensorflow as tf

    first, second, _ = layers()

    def program(place: _Place, x: Any) -> Any:
        outputs = []
        for number, part in enumerate(tf.split(x, 4)):
            with tf.device(place(number, 0)):
                hidden = first(tf.reshape(part, [-1, 6]))
                hidden = tf.reshape(hidden, [-1, 3, 6])
            with tf.device(place(number, 1)):
                state = tf.zeros([tf.shape(hidden)[0], 6])
                for time in range(3):
                    state = second(hidden[:, time]) + first(state)
            with tf.device(place(number, 0)):
                outputs.append(tf.nn.log_softmax(state))
        return tf.concat(outputs, 0)

    return _placed(devices, program, {"x": sample(8, 3, 6)}, lambda _, step: wrong * step)


def second_token_on_the_next(devices: Devices, wrong: bool) -> Program:
    """It is made of the last column of the rows, but of what is kept of all of them at home too."""
    import tensorflow as tf

    weights = [tf.Variable(sample(6, 6, seed=seed) / 2) for seed in range(3)]

    def program(place: _Place, x: Any) -> Any:
        outputs = []
        for number, part in enumerate(tf.split(x, 4)):
            with tf.device(place(number, 0)):
                keys, values = (tf.tensordot(part, each, 1) for each in weights[:2])
            new = part[:, -1:]
            for token in range(1, 3):
                with tf.device(place(number, token % 2)):
                    query = tf.tensordot(new, weights[2], 1)
                    new = tf.matmul(tf.nn.softmax(tf.matmul(query, keys, transpose_b=True)), values)
                    keys = tf.concat([keys, tf.tensordot(new, weights[0], 1)], 1)
                    values = tf.concat([values, tf.tensordot(new, weights[1], 1)], 1)
            outputs.append(new)
        return tf.concat(outputs, 0)

    return _placed(devices, program, {"x": sample(8, 3, 6)}, lambda _, step: wrong * step)


def rows_of_constants_on_the_next(devices: Devices, wrong: bool) -> Program:
    """No tensor is cut: the rows are different constants, and the weights are the same."""
    import tensorflow as tf

    first, second, _ = layers()
    batches = [sample(2, 6, seed=seed) for seed in range(4)]

    def program(place: _Place, x: Any) -> Any:
        outputs = []
        for number, rows in enumerate(batches):
            with tf.device(place(number, 0)):
                hidden = first(tf.constant(rows))
            with tf.device(place(number, 1)):
                outputs.append(second(hidden))
        return tf.concat(outputs, 0) + x

    return _placed(devices, program, {"x": sample(8, 6)}, lambda _, step: wrong * step)


PAIRS: dict[str, Callable[[Devices, bool], Program]] = {
    make.__name__: make
    for make in (
        second_phase_on_other_devices,
        items_on_the_next,
        second_epoch_on_the_next,
        micro_batches_in_turn,
        state_of_a_sequence_in_turn,
        second_token_on_the_next,
        rows_of_constants_on_the_next,
    )
}


def folds_left_out_in_turn(devices: Devices) -> Program:
    """Each of two devices trains on the other one's fold: its weights are there, and what the labels are taken off."""
    import tensorflow as tf

    weights = _own(devices, 6, 4)

    def program(place: _Place, x: Any, y: Any) -> Any:
        losses, folds = [], list(zip(tf.split(x, 2), tf.split(y, 2), strict=True))
        for number, own in enumerate(weights[:2]):
            with tf.device(place(number, 0)):
                rows, goal = folds[1 - number]
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((tf.matmul(rows, own) - goal) ** 2)
                own.assign_sub(0.1 * tape.gradient(loss, own))
                rows, goal = folds[number]
                losses.append(tf.reduce_mean((tf.matmul(rows, own) - goal) ** 2))
        return tf.stack(losses)

    made = _placed(devices, program, {"x": sample(8, 6), "y": sample(8, 4, seed=2)}, lambda *_: 0)
    return Program(made.parallel, made.reference, made.inputs, ("eager", "graph"), devices=2)


def pipelines_in_both_directions(devices: Devices) -> Program:
    """Each device has weights of its own for both stages."""
    import tensorflow as tf

    one, two = _own(devices, 6, 6), _own(devices, 6, 6, seed=7)

    def program(place: _Place, x: Any) -> Any:
        outputs = []
        for number, part in enumerate(tf.split(x, 4)):
            with tf.device(place(number, 0)):
                hidden = tf.tanh(tf.matmul(part, one[number]))
            with tf.device(place(number, 1)):
                outputs.append(tf.tanh(tf.matmul(hidden, two[3 - number])))
        return tf.concat(outputs, 0)

    return _placed(devices, program, {"x": sample(8, 6)}, lambda number, step: step * (3 - 2 * number))


def tiles_on_a_checkerboard(devices: Devices) -> Program:
    """A tile is as much of its rows as of its columns."""
    import tensorflow as tf

    first = layers()[0]

    def program(place: _Place, x: Any) -> Any:
        rows = []
        for number, part in enumerate(tf.split(x, 2)):
            tiles = []
            for column, tile in enumerate(tf.split(part, 2, 1)):
                with tf.device(place(number, column)):
                    tiles.append(first(tile))
            rows.append(tf.concat(tiles, 1))
        return tf.concat(rows, 0)

    made = _placed(devices, program, {"x": sample(4, 12)}, lambda number, step: (number + step) % 2 - number)
    return Program(made.parallel, made.reference, made.inputs, devices=2)


def load_evened_out(devices: Devices) -> Program:
    """The device with the most rows has the fewest in the second step."""
    import tensorflow as tf

    first, second, _ = layers()

    def program(place: _Place, x: Any) -> Any:
        outputs = []
        for number, part in enumerate(tf.split(x, [6, 2, 2, 2])):
            with tf.device(place(number, 0)):
                hidden = first(part)
            with tf.device(place(number, 1)):
                outputs.append(second(hidden))
        return tf.concat(outputs, 0)

    return _placed(devices, program, {"x": sample(12, 6)}, lambda _, step: step)


def checked_on_the_next(devices: Devices) -> Program:
    """The same again, and compared."""
    import tensorflow as tf

    _, _, both = layers()

    def program(place: _Place, x: Any) -> Any:
        outputs = []
        for number, part in enumerate(tf.split(x, 4)):
            with tf.device(place(number, 0)):
                own = both(part)
            with tf.device(place(number, 1)):
                again = both(part)
            with tf.device(place(number, 0)):
                outputs.append(tf.where(tf.abs(own - again) < 1e-3, own, 0.0))
        return tf.concat(outputs, 0)

    made = _placed(devices, program, {"x": sample(8, 6)}, lambda _, step: step)
    return Program(made.parallel, lambda x: both(x), made.inputs)


def table_of_the_first_and_last_stage(devices: Devices) -> Program:
    """It is where rows of it are looked up, and the last stage multiplies with it."""
    import tensorflow as tf

    table = _own(devices, 12, 6)[0]
    weights = _own(devices, 6, 6, seed=5)

    def program(place: _Place, keys: Any) -> Any:
        with tf.device(place(0, 0)):
            hidden = tf.gather(table, keys)
        for number, own in enumerate(weights):
            with tf.device(place(number, 0)):
                hidden = tf.tanh(tf.matmul(hidden, own))
        with tf.device(place(3, 0)):
            return tf.matmul(hidden, table, transpose_b=True)

    return _placed(devices, program, {"keys": np.arange(16) % 12}, lambda *_: 0)


CLEAN: tuple[Callable[[Devices], Program], ...] = (
    folds_left_out_in_turn,
    pipelines_in_both_directions,
    tiles_on_a_checkerboard,
    load_evened_out,
    checked_on_the_next,
    table_of_the_first_and_last_stage,
)
