"""Causes that are confirmed by an edit that was run: split tables, empty shards, weights of parts, what is left out.

The right code beside the slip is not accused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, verify
from harness.faults.samples import sample
from harness.judgement.diagnosis.chance import is_by_chance
from harness.judgement.diagnosis.question import Leaf
from harness.judgement.tolerance import Sensitivity

Fn = Callable[..., Any]
#: The program, faulty or right, the reference and the inputs.
Planted = tuple[Fn, Fn, dict[str, Any]]


def on_each(devices: Devices, fn: Fn, *parts: Any) -> list[Any]:
    """What ``fn`` gives for each device's parts, in its scope."""
    made = []
    for device, own in zip(devices, zip(*parts, strict=True), strict=False):
        with tf.device(device.name):
            made.append(fn(*own))
    return made


def of_no_rows(devices: Devices, wrong: bool) -> Planted:
    """A moving average of the rows; the first tower has none."""
    average = tf.Variable([1.0, 1.0])

    def model(x: Any) -> Any:
        average.assign(0.9 * average + 0.1 * tf.reduce_mean(x, axis=0))
        return x * 2.0

    def towers(x: Any) -> Any:
        half = len(x) // 2
        tower = model if wrong else (lambda part: model(part) if len(part) else part * 2.0)
        return tf.concat(on_each(devices, tower, (x[:half], x[half:])), 0)

    return towers, model, {"x": np.array([[3.0, 5.0]], np.float32)}


def _split(devices: Devices, tables: list[Any], owner: Fn, place: Fn) -> Planted:
    """A table that is split over the devices, whose parts are looked up by a rule."""
    held = []
    for device, table in zip(devices, tables, strict=True):
        with tf.device(device.name):
            held.append(tf.Variable(table))
    whole = tf.Variable(sample(8, 3))

    def program(ids: Any) -> Any:
        made = []
        for number, (device, table) in enumerate(zip(devices, held, strict=True)):
            with tf.device(device.name):
                made.append(tf.where((owner(ids) == number)[:, None], tf.gather(table, place(ids)), 0.0))
        return tf.add_n(made)

    ids = np.array([0, 3, 5, 7, 1, 6, 2, 4, 3], np.int32)
    return program, lambda ids: tf.gather(whole, ids), {"ids": ids}


def blocks_by_modulo(devices: Devices, wrong: bool) -> Planted:
    """A table in blocks of rows, looked up as if each part had every fourth row."""
    tables = np.split(sample(8, 3), 4)
    if wrong:
        return _split(devices, tables, lambda ids: ids % 4, lambda ids: ids // 4)
    return _split(devices, tables, lambda ids: ids // 2, lambda ids: ids % 2)


def modulo_by_blocks(devices: Devices, wrong: bool) -> Planted:
    """The other way round."""
    tables = [sample(8, 3)[number::4] for number in range(4)]
    if wrong:
        return _split(devices, tables, lambda ids: ids // 2, lambda ids: ids % 2)
    return _split(devices, tables, lambda ids: ids % 4, lambda ids: ids // 4)


def cut_elsewhere(devices: Devices, wrong: bool) -> Planted:
    """Tables of four rows and of two rows, looked up as if each had three."""
    whole, cut = np.arange(18.0, dtype=np.float32).reshape(6, 3), 3 if wrong else 4
    one, other = on_each(devices, tf.Variable, (whole[:4], whole[4:]))

    def program(ids: Any) -> Any:
        with tf.device(devices[0].name):
            first = tf.gather(one, tf.minimum(ids, 3))
        with tf.device(devices[1].name):
            second = tf.gather(other, tf.clip_by_value(ids - cut, 0, 1))
        return tf.where((ids < cut)[:, None], first, second)

    def reference(ids: Any) -> Any:
        return tf.gather(tf.concat([one.read_value(), other.read_value()], 0), ids)

    return program, reference, {"ids": np.array([0, 3, 2, 4, 1, 3, 0, 4], np.int32)}


def rows_swapped(devices: Devices, wrong: bool) -> Planted:
    """Rows of a table that change places after they were looked up rightly: nothing is wrong with the ids."""
    table = tf.Variable(sample(8, 3))

    def program(ids: Any) -> Any:
        parts = on_each(devices, lambda part: tf.gather(table, part) * 1.0, tf.split(ids, 4))
        return tf.concat([*parts[1:], parts[0]] if wrong else parts, 0)

    return program, lambda ids: tf.gather(table, ids), {"ids": np.arange(8, dtype=np.int32)}


def not_handed_on(devices: Devices, wrong: bool) -> Planted:
    """Two halves of a model with a tape each; the first one's gradient ignores that of the second."""
    first, second = on_each(devices, tf.Variable, (sample(6, 6), sample(6, 6, seed=1)))

    def program(x: Any) -> Any:
        with tf.device(devices[0].name), tf.GradientTape() as tape:
            features = tf.tanh(tf.matmul(x, first))
        with tf.device(devices[1].name):
            handed = tf.stop_gradient(features)
            with tf.GradientTape() as other:
                other.watch(handed)
                loss = tf.reduce_mean(tf.square(tf.matmul(handed, second)))
            back, own = other.gradient(loss, [handed, second])
            second.assign_sub(0.1 * own)
        with tf.device(devices[0].name):
            first.assign_sub(0.1 * tape.gradient(features, first, output_gradients=None if wrong else back))
        return loss

    def reference(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(tf.tanh(tf.matmul(x, first)), second)))
        for variable, gradient in zip((first, second), tape.gradient(loss, [first, second]), strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    return program, reference, {"x": sample(8, 6)}


def branch_of_each(devices: Devices, wrong: bool) -> Planted:
    """Each shard branches on its own maximum; that of the batch is in the first shard, and so in all of its parts."""

    def tower(part: Any, most: Any) -> Any:
        return tf.cond(most > 2.0, lambda: part / most, lambda: tf.square(part))

    def program(x: Any) -> Any:
        parts = tf.split(x, 4)
        own = on_each(devices, tf.reduce_max, parts)
        most = own if wrong else [tf.reduce_max(tf.stack(own))] * 4
        return tf.concat(on_each(devices, tower, parts, most), 0)

    x = sample(8, 5)
    x[0, 2] = 3.5
    return program, lambda x: tower(x, tf.reduce_max(x)), {"x": x}


def clients(devices: Devices, wrong: bool) -> Planted:
    """Clients with different numbers of rows train rightly, and count alike in the average of their weights."""
    weights, sizes = tf.Variable(sample(5)), [3, 2, 2, 1]

    def trained(start: Any, x: Any, y: Any) -> Any:
        own = start
        for _ in range(2):
            with tf.GradientTape() as tape:
                tape.watch(own)
                loss = tf.reduce_mean(tf.square(tf.linalg.matvec(x, own) - y))
            own = own - 0.1 * tape.gradient(loss, own)
        return own

    def averaged(made: list[Any], even: bool) -> Any:
        shares = [1 / 4] * 4 if even else [size / 8 for size in sizes]
        total = tf.add_n(made) / 4.0 if even else tf.add_n([a * b for a, b in zip(made, shares, strict=True)])
        weights.assign(total)
        return tf.reduce_sum(weights)

    def program(x: Any, y: Any) -> Any:
        start = weights.read_value()
        parts = tf.split(x, sizes), tf.split(y, sizes)
        return averaged(on_each(devices, lambda a, b: trained(start, a, b), *parts), wrong)

    def reference(x: Any, y: Any) -> Any:
        start = weights.read_value()
        made = [trained(start, a, b) for a, b in zip(tf.split(x, sizes), tf.split(y, sizes), strict=True)]
        return averaged(made, False)

    return program, reference, {"x": sample(8, 5), "y": sample(8, seed=1)}


def not_renormalised(devices: Devices, wrong: bool) -> Planted:
    """The weights of the chosen experts are not divided by their sum."""
    gates = sample(5, 5)

    def chosen(part: Any, leave_out: bool = False) -> Any:
        top = tf.nn.softmax(tf.matmul(part, gates))[:, 1:4]
        return top if leave_out else top / tf.reduce_sum(top, axis=1, keepdims=True)

    def program(x: Any) -> Any:
        return tf.concat(on_each(devices, lambda part: chosen(part, wrong), tf.split(x, 4)), 0)

    return program, lambda x: chosen(x), {"x": sample(8, 5)}


def one_factor_more(devices: Devices, wrong: bool) -> Planted:
    """A factor that the reference does not have, after ops that are right."""
    weights = sample(5, 5)

    def tower(part: Any) -> Any:
        made = tf.tanh(tf.matmul(part, weights))
        return (made * 0.25 if wrong else made) - 0.5 * tf.square(part)

    def reference(x: Any) -> Any:
        return tf.tanh(tf.matmul(x, weights)) - 0.5 * tf.square(x)

    return lambda x: tf.concat(on_each(devices, tower, tf.split(x, 4)), 0), reference, {"x": sample(8, 5)}


def one_label_for_all(devices: Devices, wrong: bool) -> Planted:
    """Labels of the shape [n, 1] are taken from predictions of the shape [n]."""
    weights = sample(6, 1)

    def tower(x: Any, y: Any) -> Any:
        made = tf.matmul(x, weights)
        return tf.reduce_mean((made[:, 0] - y if wrong else made - y) ** 2)

    def program(x: Any, y: Any) -> Any:
        return tf.add_n(on_each(devices, tower, tf.split(x, 4), tf.split(y, 4))) / 4.0

    def reference(x: Any, y: Any) -> Any:
        return tf.reduce_mean((tf.matmul(x, weights) - y) ** 2)

    return program, reference, {"x": sample(8, 6), "y": sample(8, 1, seed=1)}


def _twice(devices: Devices, fault: str, wrong: bool) -> Planted:
    """Two steps of training, on one half of the batch each."""
    weights, total = tf.Variable(sample(6, 2)), tf.Variable(tf.zeros((6, 2)), trainable=False)

    def gradient(own: Any, x: Any, y: Any) -> Any:
        return tf.matmul(x, tf.matmul(x, own) - y, transpose_a=True) / float(len(x))

    def program(x: Any, y: Any) -> Any:
        held = tf.identity(weights)
        for xs, ys in zip(tf.split(x, 2), tf.split(y, 2), strict=True):
            own = held if fault == "stale" and wrong else tf.identity(weights)
            parts = tf.split(xs, 4), tf.split(ys, 4)
            mean = tf.add_n(on_each(devices, lambda a, b, own=own: gradient(own, a, b), *parts)) / 4.0
            if fault == "kept":
                total.assign_add(mean)
                weights.assign_sub(0.1 * total)
                if not wrong:
                    total.assign(tf.zeros_like(total))
            else:
                weights.assign_sub(0.1 * mean)
        return tf.reduce_sum(weights)

    def reference(x: Any, y: Any) -> Any:
        for xs, ys in zip(tf.split(x, 2), tf.split(y, 2), strict=True):
            weights.assign_sub(0.1 * gradient(weights, xs, ys))
        return tf.reduce_sum(weights)

    return program, reference, {"x": sample(16, 6), "y": sample(16, 2, seed=1)}


def stale_weights(devices: Devices, wrong: bool) -> Planted:
    """The second step uses the weights from before the first."""
    return _twice(devices, "stale", wrong)


def kept_total(devices: Devices, wrong: bool) -> Planted:
    """What the first step has added up is left in the accumulator."""
    return _twice(devices, "kept", wrong)


#: How many devices each has, and what the first sentence says.
FAULTS: dict[Callable[[Devices, bool], Planted], tuple[int, str]] = {
    of_no_rows: (2, r"A shard is empty: 1 row is split over 2 devices, and variable \S+ is NaN for 0 rows"),
    blocks_by_modulo: (4, r"the table is split in blocks into 4 parts, but an id is looked up in part id % 4 and row"),
    modulo_by_blocks: (4, r"the table is split by id % 4 into 4 parts, but an id is looked up in part id // 2 and row"),
    cut_elsewhere: (2, r"\(3 as 4 and 4 as 5\): ids from 3 to 4 are looked up 1 row further on"),
    rows_swapped: (4, r"joined in a different order than the batch was split: shards 1, 2, 3 and 0"),
    not_handed_on: (2, r"the gradient starts from ones there \(is output_gradients= missing\?\)"),
    branch_of_each: (4, r"rows of output depend on other rows of the batch, but each shard has only its own"),
    clients: (4, r"AddN .*: it counts the 4 shards alike; to weight them by their rows \(3, 2, 2 and 1\) makes"),
    not_renormalised: (4, r"Output is the result of StridedSlice .*: the ops after it .* left out, starting with Sum"),
    one_factor_more: (4, r"Mul: .*; to leave this Mul by 0.25 out makes the results right"),
    one_label_for_all: (4, r"it broadcasts inputs of the shapes \[2\] and \[2, 1\] to \[2, 2\]; giving both the same"),
    stale_weights: (
        4,
        r"it reads a variable's value from before AssignSubVariableOp .*; the value from after it makes",
    ),
    kept_total: (
        4,
        r"AssignAddVariableOp: it adds to what its run before has left in the variable; to overwrite that makes",
    ),
}


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_cause_is_confirmed_by_an_edit_and_its_twin_passes(
    devices: Devices, plant: Callable[[Devices, bool], Planted]
) -> None:
    count, said = FAULTS[plant]
    some = devices[:count]
    found, twin = (
        verify(program, reference, inputs, devices=some, modes=("eager",))
        for program, reference, inputs in (plant(some, True), plant(some, False))
    )
    assert found.verdict is Verdict.FAIL
    assert re.search(said, found.reason), found.reason
    assert not {each.kind for each in twin.findings} & {"value", "gradient", "shape"}, twin


def test_one_whole_number_is_right_by_chance_and_many_floating_ones_are_not() -> None:
    def leaf(found: Any, expected: Any) -> Leaf:
        one, other = np.asarray(found), np.asarray(expected)
        return Leaf("outputs", 0, "output", one, other, True, lambda: Sensitivity(np.zeros_like(other), 1))

    count = leaf(np.int64(3), np.int64(4))
    assert is_by_chance([count], 0)
    assert is_by_chance([leaf([1, 0, 0, 1], [1, 1, 0, 0])], 3)
    assert not is_by_chance([leaf([0.5, 0.25], [0.75, 0.5])], 30)
    assert not is_by_chance([leaf(0.5, 0.75)], 30)
    assert is_by_chance([leaf(0.5, 0.75)], 1000)
