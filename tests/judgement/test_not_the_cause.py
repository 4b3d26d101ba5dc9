"""What looks like a cause is not named where it cannot be: as where it is no different in what is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, verify
from harness.faults.samples import sample

pytestmark = pytest.mark.devices(min=4)
Made = tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]


def on_each(devices: Devices, work: Callable[..., Any], *arrays: Any, axis: int = 0) -> Any:
    parts = zip(*(tf.split(array, len(devices), axis) for array in arrays), strict=True)
    results = []
    for number, (device, part) in enumerate(zip(devices, parts, strict=True)):
        with tf.device(device.name):
            results.append(work(number, *part))
    return tf.concat(results, axis)


def cleared(devices: Devices, wrong: bool, places: list[list[int]]) -> Made:
    """Zeros are written into what the reference has as well."""
    weights = tf.constant(sample(5, 3))

    def shifted(x: Any) -> Any:
        return tf.nn.relu(tf.matmul(x, weights)) + 1.0

    def work(number: int, own: Any) -> Any:
        y = shifted(own)
        return tf.tensor_scatter_nd_update(y, places, tf.zeros([len(places), 3])) if wrong and number == 1 else y

    return lambda x: on_each(devices, work, x), shifted, {"x": sample(8, 5)}


def one_row(devices: Devices, wrong: bool) -> Made:
    return cleared(devices, wrong, [[1]])


def one_row_twice(devices: Devices, wrong: bool) -> Made:
    return cleared(devices, wrong, [[1], [1]])


def each_row_once(devices: Devices, wrong: bool) -> Made:
    """Rows are to be added to a table, and no two of them to the same row of it."""

    def work(_: int, table: Any, rows: Any) -> Any:
        put = tf.tensor_scatter_nd_update if wrong else tf.tensor_scatter_nd_add
        return put(tf.tanh(table), [[1], [0]], rows)

    def reference(table: Any, rows: Any) -> Any:
        turned = tf.reshape(tf.reverse(tf.reshape(rows, [-1, 2, 3]), [1]), [-1, 3])
        return tf.tanh(table) + turned

    inputs = {"table": sample(8, 3), "rows": sample(8, 3, seed=1)}
    return lambda table, rows: on_each(devices, work, table, rows), reference, inputs


def images(devices: Devices, wrong: bool, row: Callable[[list[Any], int], Any]) -> Made:
    """Convolutions of images whose height is split, with the rows on each side: ``row`` takes a wrong one."""
    weights = tf.constant(sample(3, 3, 2, 4))

    def program(x: Any) -> Any:
        parts = tf.split(x, 4, 1)

        def work(number: int, own: Any) -> Any:
            none = tf.zeros_like(own[:, :1])
            before = parts[number - 1][:, -1:] if number else none
            if wrong and number == 1:
                before = row(parts, number)
            after = parts[number + 1][:, :1] if number < 3 else none
            padded = tf.concat([before, own, after], 1)
            return tf.nn.conv2d(padded, weights, 1, [[0, 0], [0, 0], [1, 1], [0, 0]])

        return on_each(devices, work, x, axis=1)

    return program, lambda x: tf.nn.conv2d(x, weights, 1, "SAME"), {"x": sample(2, 12, 6, 2)}


def first_row_of_the_neighbour(devices: Devices, wrong: bool) -> Made:
    return images(devices, wrong, lambda parts, number: parts[number - 1][:, :1])


def row_of_another_shard(devices: Devices, wrong: bool) -> Made:
    return images(devices, wrong, lambda parts, number: parts[number + 2][:, -1:])


def in_a_ring(devices: Devices, wrong: bool) -> Made:
    """Each device reads all of the shard after its own, the last one that of the first."""

    def mixed(own: Any, after: Any) -> Any:
        return tf.matmul(tf.concat([own, after], 1), tf.ones([6, 1]))

    def program(x: Any) -> Any:
        parts = tf.split(x, 4)

        def work(number: int, own: Any) -> Any:
            return mixed(own, parts[(number + (2 if wrong and number == 3 else 1)) % 4])

        return on_each(devices, work, x)

    return program, lambda x: mixed(x, tf.roll(x, -2, 0)), {"x": sample(8, 3)}


def zeros_beside(devices: Devices, wrong: bool) -> Made:
    """The second convolution has zeros in place of its neighbours' rows."""
    one, two = tf.constant(sample(3, 3, 2, 3)), tf.constant(sample(3, 3, 3, 2))
    image = [[0, 0], [0, 0], [1, 1], [0, 0]]

    def beside(parts: list[Any], number: int, *, lacks: bool = False) -> Any:
        none = tf.zeros_like(parts[number][:, :1])
        before = none if lacks or not number else parts[number - 1][:, -1:]
        after = none if lacks or number == len(parts) - 1 else parts[number + 1][:, :1]
        return tf.concat([before, parts[number], after], 1)

    def program(x: Any) -> Any:
        parts, hidden = tf.split(x, 4, 1), []
        for number, device in enumerate(devices):
            with tf.device(device.name):
                hidden.append(tf.nn.conv2d(beside(parts, number), one, 1, image))

        def work(number: int, _: Any) -> Any:
            return tf.nn.conv2d(beside(hidden, number, lacks=wrong), two, 1, image)

        return on_each(devices, work, x, axis=1)

    def reference(x: Any) -> Any:
        return tf.nn.conv2d(tf.nn.conv2d(x, one, 1, "SAME"), two, 1, "SAME")

    return program, reference, {"x": sample(2, 20, 4, 2)}


def labels_of_chains(devices: Devices, wrong: bool) -> Made:
    """One step too few of each chain; that changes one row at first, and by chance it lies beside a cut."""
    moves = tf.constant(sample(4, 4, seed=1))

    def total(x: Any, lengths: Any, one_less: bool = False) -> Any:
        state = x[:, 0]
        for time in range(1, 5):
            after = tf.reduce_logsumexp(state[:, :, tf.newaxis] + moves[tf.newaxis], 1) + x[:, time]
            seen = time < lengths - (1 if one_less else 0)
            state = tf.where(seen[:, tf.newaxis], after, state)
        return tf.reduce_logsumexp(state, -1)

    def program(x: Any, lengths: Any) -> Any:
        def work(number: int, own: Any, of_own: Any) -> Any:
            return total(own, of_own, one_less=wrong and number == 1)

        return on_each(devices, work, x, lengths)

    lengths = np.array([5, 4, 3, 5, 2, 5, 4, 1, 3, 5, 4, 5, 4, 2, 5, 3], np.int32)
    return program, total, {"x": sample(16, 5, 4), "lengths": lengths}


def exclusive_sums(devices: Devices, wrong: bool) -> Made:
    """The same attribute is right on some devices by chance: their rows are zero."""

    def sums(x: Any, exclusive: bool = False) -> Any:
        return tf.cumsum(x, 1, exclusive=exclusive)

    x = sample(8, 4)
    x[:4] = 0.0
    return lambda x: on_each(devices, lambda _, own: sums(own, wrong), x), sums, {"x": x}


def factor(devices: Devices, wrong: bool) -> Made:
    """A factor is left out; the two programs are on lines of their own, and the operands in another order."""

    def reference(x: Any) -> Any:
        return 0.7 * (tf.reduce_sum(tf.tanh(x), 1) * 4.0) + 0.3 * tf.reduce_sum(x * x, 1)

    def other(x: Any) -> Any:
        total = tf.reduce_sum(tf.tanh(x), 1)
        return 0.7 * (total if wrong else 4.0 * total) + tf.reduce_sum(x * x, 1) * 0.3

    return lambda x: on_each(devices, lambda _, own: other(own), x), reference, {"x": sample(8, 5)}


def another_factor(devices: Devices, wrong: bool) -> Made:
    """The constant is on the other side in the reference."""

    def reference(x: Any) -> Any:
        return tf.maximum(tf.tanh(x), 0.0) * 4.0

    def other(x: Any) -> Any:
        return (3.0 if wrong else 4.0) * tf.maximum(0.0, tf.tanh(x))

    return lambda x: on_each(devices, lambda _, own: other(own), x), reference, {"x": sample(8, 5)}


def another_bound(devices: Devices, wrong: bool) -> Made:
    """A constant is read in place of what was computed."""

    def reference(x: Any) -> Any:
        return tf.maximum(tf.tanh(x), tf.reduce_sum(x * x, 1, keepdims=True) - 4.0)

    def other(x: Any) -> Any:
        bound = tf.reduce_sum(x * x, 1, keepdims=True) - 4.0
        return tf.maximum(0.25 if wrong else bound, tf.tanh(x))

    return lambda x: on_each(devices, lambda _, own: other(own), x), reference, {"x": sample(8, 5)}


def row_by_row(devices: Devices, wrong: bool) -> Made:
    """The reference runs the line for each row of the batch, and a device for each of its shard."""

    def noisy(x: Any, noise: Any) -> Any:
        return tf.stack([row + tf.tanh(own) for row, own in zip(tf.unstack(x), tf.unstack(noise), strict=True)])

    def work(number: int, x: Any, noise: Any) -> Any:
        return noisy(x, tf.stack([noise[0], noise[0]]) if wrong and number == 2 else noise)

    inputs = {"x": sample(8, 5), "noise": sample(8, 5, seed=3)}
    return lambda x, noise: on_each(devices, work, x, noise), noisy, inputs


CASES: list[tuple[Callable[[Devices, bool], Made], str, str]] = [
    (one_row, "TensorScatterUpdate", "overwrite"),
    (one_row_twice, "TensorScatterUpdate", "overwrite"),
    (each_row_once, "An addend is left out of output", "equal indices"),
    (
        first_row_of_the_neighbour,
        "it takes position 0; with position 2, which corresponds to position 5 on",
        "padding",
    ),
    (row_of_another_shard, "it reads positions 9 to 11; with positions 0 to 2, which correspond", "padding"),
    (in_a_ring, "correspond", "padding"),
    (zeros_beside, "its result differs only within 1 position of a shard boundary along axis 1: it lacks", "rows"),
    (labels_of_chains, "SelectV2 on", "neighbouring"),
    (factor, "Mul: its input equals Sum", "the constant"),
    (another_factor, "Mul: it reads the constant 3 where the reference reads 4", "its input"),
    (another_bound, "Maximum: it reads the constant 0.25 where the reference reads Sub", "its input"),
    (row_by_row, "AddV2: its input equals Tanh", "Unpack"),
    (exclusive_sums, "Cumsum: it has exclusive=True where the reference has exclusive=False", "its inputs"),
]


@pytest.mark.parametrize(("make", "said", "unsaid"), [pytest.param(*case, id=case[0].__name__) for case in CASES])
def test_what_cannot_be_the_cause_is_not_named(
    devices: Devices, make: Callable[[Devices, bool], Made], said: str, unsaid: str
) -> None:
    wrong, right = (verify(*make(devices[:4], each), devices=devices[:4], gradients=False) for each in (True, False))

    assert wrong.verdict is Verdict.FAIL
    assert said in wrong.reason, wrong
    assert unsaid not in wrong.reason, wrong
    assert right.verdict is Verdict.PASS, right.reason
