"""The first op that differs reads another result, column, constant or state than the reference's op does."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, verify
from harness.faults.samples import sample

Fn = Callable[..., Any]
#: The program, faulty or right, the reference and the inputs.
Planted = tuple[Fn, Fn, dict[str, Any]]


def joined(devices: Devices, fn: Fn, x: Any) -> Any:
    made = []
    for number, (device, part) in enumerate(zip(devices, tf.split(x, len(devices)), strict=True)):
        with tf.device(device.name):
            made.append(fn(number, part))
    return tf.concat(made, 0)


def halves(devices: Devices, wrong: bool) -> Planted:
    """A gated unit whose gate and value are swapped."""
    weights = tf.Variable(sample(6, 8))

    def gated(_: int, part: Any, swap: bool = False) -> Any:
        value, gate = tf.split(tf.matmul(part, weights), 2, 1)
        return gate * tf.sigmoid(value) if swap else value * tf.sigmoid(gate)

    inputs = {"x": sample(12, 6)}
    program = lambda x: joined(devices, lambda number, part: gated(number, part, wrong), x)  # noqa: E731
    return program, lambda x: gated(0, x), inputs


def later(devices: Devices, wrong: bool) -> Planted:
    """A model of the next step that is compared with the same step."""
    weights = tf.Variable(sample(3, 3))

    def error(part: Any, begin: int = 1) -> Any:
        early, late = part[:, :-1], part[:, 1:]
        return tf.matmul(tf.reshape(early, (-1, 3)), weights) - tf.reshape(late if begin else early, (-1, 3))

    program = lambda x: joined(devices, lambda _, part: error(part, 0 if wrong else 1), x)  # noqa: E731
    return program, lambda x: error(x), {"x": sample(12, 5, 3)}


def columns(devices: Devices, wrong: bool) -> Planted:
    """A layer that is split along its features, whose second half has the rows of a neighbour."""
    first, second = tf.Variable(sample(8, 24)), tf.Variable(sample(24, 5, seed=1))

    def program(x: Any) -> Any:
        made, size = [], 24 // len(devices)
        for number, device in enumerate(devices):
            other = (number + 1) % len(devices) if wrong else number
            with tf.device(device.name):
                hidden = tf.tanh(tf.matmul(x, first[:, number * size : (number + 1) * size]))
                made.append(tf.matmul(hidden, second[other * size : (other + 1) * size]))
        return tf.add_n(made)

    return program, lambda x: tf.matmul(tf.tanh(tf.matmul(x, first)), second), {"x": sample(6, 8)}


def padding(devices: Devices, wrong: bool) -> Planted:
    """A mean over words that counts the padding too."""

    def mean(_: int, part: Any, whole: bool = False) -> Any:
        mask = tf.cast(part > 0.0, part.dtype)
        total = tf.reduce_sum(part * mask, 1, keepdims=True)
        return total / (6.0 if whole else tf.reduce_sum(mask, 1, keepdims=True) + 1.0)

    program = lambda x: joined(devices, lambda number, part: mean(number, part, wrong), x)  # noqa: E731
    return program, lambda x: mean(0, x), {"x": sample(12, 5)}


def large_sums(devices: Devices, wrong: bool) -> Planted:
    """Whole numbers that are added up before they get more bits."""

    def total(part: Any) -> Any:
        wide = part if wrong else tf.cast(part, tf.int32)
        return tf.cast(tf.reduce_sum(wide, 0, keepdims=True), tf.int32)

    x = np.random.default_rng(3).integers(60, 120, (12, 5)).astype(np.int8)
    program = lambda x: tf.reduce_sum(joined(devices, lambda _, part: total(part), x), 0)  # noqa: E731
    return program, lambda x: tf.reduce_sum(tf.cast(x, tf.int32), 0), {"x": x}


def layers(devices: Devices, wrong: bool) -> Planted:
    weights = [
        tf.Variable(sample(6, 6, seed=seed), name=name) for seed, name in enumerate(("first", "second", "third"))
    ]

    def program(x: Any) -> Any:
        for number, device in enumerate(devices):
            layer = min(number, 2)
            with tf.device(device.name):
                x = tf.tanh(tf.matmul(x, weights[1 if wrong and layer == 2 else layer]))
        return x

    def reference(x: Any) -> Any:
        for layer in (0, 1, 2, 2):
            x = tf.tanh(tf.matmul(x, weights[layer]))
        return x

    return program, reference, {"x": sample(8, 6)}


def micro_batches(devices: Devices, wrong: bool) -> Planted:
    """The last micro-batch of each device is left out; the loss is one number, and the update is many."""
    weights = tf.Variable(sample(5, 3))

    def slope(part: Any, of: int) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(part, weights))) / of
        return loss, tape.gradient(loss, weights)

    def program(x: Any) -> Any:
        made = []
        for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                made += [slope(each, 3) for each in tf.split(part, 3)[: -1 if wrong else None]]
        losses, slopes = zip(*made, strict=True)
        weights.assign_sub(0.1 * tf.add_n(slopes) / len(devices))
        return tf.add_n(losses) / len(devices)

    def reference(x: Any) -> Any:
        loss, own = slope(x, 1)
        weights.assign_sub(0.1 * own)
        return loss

    return program, reference, {"x": sample(36, 5)}


def repeated(devices: Devices, wrong: bool) -> Planted:
    """Rows with the same index, of which one alone is kept."""

    def program(x: Any, at: Any) -> Any:
        rows = joined(devices, lambda _, part: tf.tanh(part), x)
        if wrong:
            return tf.tensor_scatter_nd_update(tf.zeros([9, 4]), at, rows)
        return tf.tensor_scatter_nd_add(tf.zeros([9, 4]), at, rows)

    inputs = {
        "x": sample(12, 4),
        "at": np.array([[1], [3], [1], [8], [0], [2], [2], [5], [7], [6], [4], [3]], np.int32),
    }
    return program, lambda x, at: tf.tensor_scatter_nd_add(tf.zeros([9, 4]), at, tf.tanh(x)), inputs


def causal(devices: Devices, wrong: bool) -> Planted:
    """Attention whose mask begins anew in each shard."""

    def attend(offset: int, part: Any, keys: Any) -> Any:
        scores = tf.matmul(part, keys, transpose_b=True) / 2.0
        seen = tf.range(keys.shape[0])[tf.newaxis] <= tf.range(part.shape[0])[:, tf.newaxis] + offset
        return tf.matmul(tf.nn.softmax(tf.where(seen, scores, -1e9)), keys)

    def program(x: Any, keys: Any) -> Any:
        return joined(devices, lambda number, part: attend(0 if wrong else number * 3, part, keys), x)

    return program, lambda x, keys: attend(0, x, keys), {"x": sample(12, 4), "keys": sample(12, 4, seed=1)}


def another_table(devices: Devices, wrong: bool) -> Planted:
    """One device looks up its rows in a table that was not updated."""
    table, stale = tf.Variable(sample(10, 4), name="table"), tf.Variable(sample(10, 4, seed=5), name="stale")

    def looked_up(number: int, part: Any) -> Any:
        return tf.tanh(tf.gather(tf.identity(stale if wrong and number == 1 else table), part))

    inputs = {"words": np.array([0, 1, 2, 5, 3, 9, 3, 4, 8, 7, 6, 2], np.int32)}
    return lambda words: joined(devices, looked_up, words), lambda words: tf.tanh(tf.gather(table, words)), inputs


CASES: list[tuple[Callable[[Devices, bool], Planted], str]] = [
    (
        halves,
        r"Sigmoid.* input equals part 0 of Split .* in the reference, but the reference's op reads part 1 of Split",
    ),
    (later, r"Sub.* input equals .* in the reference, but the reference's op reads .*"),
    (columns, r"MatMul.* it multiplies positions 0 to 5 of Tanh .* with rows 6 to 11 of StridedSlice"),
    (padding, r"RealDiv.* it reads the constant 6 where the reference reads "),
    (large_sums, r"Sum.* its result is too large for int8: \d+ becomes -?\d+"),
    (layers, "MatMul.* it reads variable second where the reference reads variable third"),
    (repeated, "TensorScatterUpdate.* rows with equal indices overwrite one another, but the reference adds them up"),
    (causal, "rows before them, but each shard starts over"),
    (another_table, "it reads variable stale, which the reference never reads"),
    (micro_batches, r"12 rows \(6, 7, 8, …\) do not count in output"),
]


#: An op that GPUs have no kernel for.
ON_CPUS = {"large_sums": [pytest.mark.devices(min=4, kind="logical-cpu")]}


@pytest.mark.cases("another_table", "large_sums", "layers", "columns", "micro_batches", "later")
@pytest.mark.parametrize(
    ("plant", "words"),
    [pytest.param(plant, words, id=plant.__name__, marks=ON_CPUS.get(plant.__name__, [])) for plant, words in CASES],
)
def test_what_is_read_in_place_of_the_reference_is_told(
    devices: Devices, plant: Callable[[Devices, bool], Planted], words: str
) -> None:
    found = verify(*plant(devices, True), devices=devices)
    assert found.verdict is Verdict.FAIL
    assert re.search(words, found.reason), found
    assert "test_other_readings.py" in found.reason
    right = verify(*plant(devices, False), devices=devices)
    assert not any(each.kind in ("value", "shape", "dtype") for each in right.findings), right
