"""An op that a shard runs by itself: without its neighbours' rows, with numbers that lack its offset, or an update."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, verify
from harness.faults.samples import integers, sample

Fn = Callable[..., Any]
#: The program, faulty or right, the reference, the inputs, and options of ``verify``.
Planted = tuple[Fn, Fn, dict[str, Any], dict[str, Any]]

_IMAGE = [[0, 0], [0, 0], [1, 1], [0, 0]]


def on_each(devices: Devices, fn: Fn, *columns: Any) -> list[Any]:
    """``fn`` of the number of each shard and of its parts."""
    made = []
    for number, (device, *parts) in enumerate(zip(devices, *columns, strict=True)):
        with tf.device(device.name):
            made.append(fn(number, *parts))
    return made


def split(devices: Devices, x: Any, axis: int = 0) -> list[Any]:
    return list(tf.split(x, len(devices), axis))


def with_neighbours(parts: list[Any], number: int) -> Any:
    """A part with the position on each side of it."""
    none = tf.zeros_like(parts[number][:, :1])
    before = parts[number - 1][:, -1:] if number else none
    after = parts[number + 1][:, :1] if number + 1 < len(parts) else none
    return tf.concat([before, parts[number], after], 1)


def no_neighbours(devices: Devices, wrong: bool, second: bool = False) -> Planted:
    """Convolutions of images whose height is split; ``second``: the first one is right."""
    one, two = tf.Variable(sample(3, 3, 2, 3)), tf.Variable(sample(3, 3, 3, 2))

    def layer(parts: list[Any], weights: Any, lacks: bool) -> list[Any]:
        def convolve(number: int, part: Any) -> Any:
            if lacks:
                return tf.nn.conv2d(part, weights, 1, "SAME")
            return tf.nn.conv2d(with_neighbours(parts, number), weights, 1, _IMAGE)

        return on_each(devices, convolve, parts)

    def program(x: Any) -> Any:
        hidden = layer(split(devices, x, 1), one, wrong and not second)
        return tf.concat(layer(hidden, two, wrong) if second else hidden, 1)

    def reference(x: Any) -> Any:
        hidden = tf.nn.conv2d(x, one, 1, "SAME")
        return tf.nn.conv2d(hidden, two, 1, "SAME") if second else hidden

    return program, reference, {"x": sample(2, 5 * len(devices), 4, 2)}, {}


def second_layer(devices: Devices, wrong: bool) -> Planted:
    return no_neighbours(devices, wrong, second=True)


def valid_rows(devices: Devices, wrong: bool) -> Planted:
    """A mask of the first rows of the batch, which each shard counts anew."""
    weights = tf.Variable(sample(5, 3))

    def masked(x: Any, valid: Any) -> Any:
        return tf.matmul(x, weights) * tf.sequence_mask(valid, tf.shape(x)[0], tf.float32)[:, tf.newaxis]

    def program(x: Any, valid: Any) -> Any:
        size = x.shape[0] // len(devices)
        tower = lambda number, part: masked(part, valid if wrong else tf.clip_by_value(valid - number * size, 0, size))  # noqa: E731
        return tf.concat(on_each(devices, tower, split(devices, x)), 0)

    return program, masked, {"x": sample(4 * len(devices), 5), "valid": np.int32(6)}, {}


def groups(devices: Devices, wrong: bool) -> Planted:
    """Each two rows are a group."""
    count = 2 * len(devices)

    def program(x: Any) -> Any:
        def summed(number: int, part: Any) -> Any:
            rows = tf.range(4) + (0 if wrong else 4 * number)
            return tf.math.unsorted_segment_sum(tf.tanh(part), rows // 2, count)

        return tf.add_n(on_each(devices, summed, split(devices, x)))

    def reference(x: Any) -> Any:
        return tf.math.unsorted_segment_sum(tf.tanh(x), tf.range(2 * count) // 2, count)

    return program, reference, {"x": sample(2 * count, 3)}, {}


def groups_by_the_least(devices: Devices, wrong: bool) -> Planted:
    """The groups are an input; nothing here is IndexedSlices."""
    count = 2 * len(devices)

    def program(x: Any, of: Any) -> Any:
        def summed(_: int, part: Any, own: Any) -> Any:
            return tf.math.unsorted_segment_sum(tf.tanh(part), own - tf.reduce_min(own) if wrong else own, count)

        return tf.add_n(on_each(devices, summed, split(devices, x), split(devices, of)))

    reference = lambda x, of: tf.math.unsorted_segment_sum(tf.tanh(x), of, count)  # noqa: E731
    of = np.repeat(np.arange(count), 2).astype("int32")
    return program, reference, {"x": sample(2 * count, 3), "of": of}, {}


def captured_labels(devices: Devices, wrong: bool) -> Planted:
    """Labels that are no input: each shard compares with those of the first one."""
    labels = sample(4 * len(devices), 3, seed=7)

    def program(x: Any) -> Any:
        def loss(number: int, part: Any) -> Any:
            first = 0 if wrong else 4 * number
            return tf.square(tf.tanh(part) - tf.constant(labels)[first : first + 4])

        return tf.concat(on_each(devices, loss, split(devices, x)), 0)

    return program, lambda x: tf.square(tf.tanh(x) - labels), {"x": sample(4 * len(devices), 3)}, {}


def places_in_experts(devices: Devices, wrong: bool) -> Planted:
    """Each expert has four places, which a shard counts from the first one."""
    gate, experts = tf.Variable(sample(5, 3)), tf.Variable(sample(3, 5, 4, seed=3))

    def chosen(x: Any) -> Any:
        return tf.one_hot(tf.argmax(tf.matmul(x, gate), 1), 3)

    def routed(x: Any, before: Any) -> Any:
        one = chosen(x)
        place = tf.reduce_sum((tf.cumsum(one) - 1.0 + before) * one, 1)
        return tf.einsum("bd,edf,be->bf", x, experts, one) * tf.cast(place < 4.0, tf.float32)[:, tf.newaxis]

    def program(x: Any) -> Any:
        parts = split(devices, x)
        counts = on_each(devices, lambda _, part: tf.reduce_sum(chosen(part), 0), parts)
        before = tf.unstack(tf.cumsum(tf.stack(counts), exclusive=True))
        tower = lambda _, part, taken: routed(part, 0.0 if wrong else taken)  # noqa: E731
        return tf.concat(on_each(devices, tower, parts, before), 0)

    return program, lambda x: routed(x, 0.0), {"x": sample(5 * len(devices), 5)}, {}


def slots(devices: Devices, wrong: bool) -> Planted:
    """The momentum moves once for each shard, the weights once."""
    weights, momentum = tf.Variable(sample(5, 3)), tf.Variable(tf.zeros([5, 3]), name="momentum")

    def gradient(_: int, x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(x, weights)))
        return tape.gradient(loss, weights)

    def apply(gradients: list[Any]) -> None:
        for each in gradients:
            momentum.assign(0.9 * momentum + 0.1 * each)
        weights.assign_sub(momentum)

    def program(x: Any) -> None:
        parts = on_each(devices, gradient, split(devices, x))
        apply(parts if wrong else [tf.add_n(parts) / len(devices)])

    reference = lambda x: apply([gradient(0, x)])  # noqa: E731
    return program, reference, {"x": sample(4 * len(devices), 5)}, {"variables": [weights, momentum]}


def covariance(devices: Devices, wrong: bool) -> Planted:
    """The products of the features, from which their means were not subtracted."""

    def program(x: Any) -> Any:
        parts = split(devices, x)
        mean = tf.add_n(on_each(devices, lambda _, part: tf.reduce_sum(part, 0), parts)) / x.shape[0]

        def product(_: int, part: Any) -> Any:
            rows = part if wrong else part - mean
            return tf.matmul(rows, rows, transpose_a=True)

        return tf.add_n(on_each(devices, product, parts)) / x.shape[0]

    def reference(x: Any) -> Any:
        rows = x - tf.reduce_mean(x, 0)
        return tf.matmul(rows, rows, transpose_a=True) / x.shape[0]

    return program, reference, {"x": sample(4 * len(devices), 3) + 1.0}, {}


def repeated_words(devices: Devices, wrong: bool) -> Planted:
    def program(x: Any, words: Any) -> Any:
        def table(_: int, part: Any, own: Any) -> Any:
            put = tf.tensor_scatter_nd_update if wrong else tf.tensor_scatter_nd_add
            return put(tf.zeros([5, 3]), own[:, tf.newaxis], tf.tanh(part))

        return tf.add_n(on_each(devices, table, split(devices, x), split(devices, words)))

    reference = lambda x, words: tf.scatter_nd(words[:, tf.newaxis], tf.tanh(x), [5, 3])  # noqa: E731
    count = 4 * len(devices)
    return program, reference, {"x": sample(count, 3), "words": integers(5, count, seed=5)}, {}


def ranks_of_numpy(devices: Devices, wrong: bool) -> Planted:
    """NumPy ranks the rows, of each shard or of the batch; eager code runs no op for that."""

    def ranked(x: Any) -> Any:
        return tf.numpy_function(lambda rows: np.argsort(np.argsort(rows, 0), 0).astype("float32"), [x], tf.float32)

    def program(x: Any) -> Any:
        parts = on_each(devices, lambda _, part: tf.tanh(part), split(devices, x))
        return 2.0 * (tf.concat([ranked(part) for part in parts], 0) if wrong else ranked(tf.concat(parts, 0)))

    return program, lambda x: 2.0 * ranked(tf.tanh(x)), {"x": sample(4 * len(devices), 3)}, {"gradients": False}


CASES: list[tuple[Callable[[Devices, bool], Planted], str]] = [
    (no_neighbours, r"^Each shard lacks positions of its neighbours: .* only within 1 position of a shard boundary"),
    (second_layer, r"^Conv2D: its result differs only within 1 position of a shard boundary along axis 1"),
    (valid_rows, r"Less: the numbers that it reads from Range .* lack the shard's offset: in shard 1 they are 4 less"),
    (groups, r"UnsortedSegmentSum: the numbers that it reads from FloorDiv .* in shard 1 they are 2 less"),
    (groups_by_the_least, r"is Min: .*; the reference runs no Min"),
    (
        captured_labels,
        r"pairs rows 4 to 7 of .* with rows 0 to 3 of StridedSlice .*which every shard reads: the offset of the shard",
    ),
    (places_in_experts, r"the first op that differs is Cumsum"),
    (slots, r"^Variable momentum is updated \d times, once with each shard's result"),
    (covariance, r"MatMul: it reads x where the reference reads Sub"),
    (ranks_of_numpy, r"the first op that differs is numpy_function"),
    (repeated_words, r"^TensorScatterUpdate[^:]*(CPU|GPU)?.*rows with equal indices overwrite one another"),
]


#: On a GPU the segment sum is named in place of the minimum of whole numbers; functions of NumPy have no kernel there.
NO_GPU_KERNEL = pytest.mark.devices(kind="logical-cpu")
PARAMETERS = [
    pytest.param(*case, id=case[0].__name__, marks=[NO_GPU_KERNEL] * (case[0] in (groups_by_the_least, ranks_of_numpy)))
    for case in CASES
]


@pytest.mark.cases("no_neighbours", "groups", "captured_labels", "ranks_of_numpy", "slots", "groups_by_the_least")
@pytest.mark.parametrize(("planted", "words"), PARAMETERS)
def test_what_a_shard_does_by_itself_is_named(
    devices: Devices, planted: Callable[[Devices, bool], Planted], words: str
) -> None:
    program, reference, inputs, options = planted(devices, True)
    found = verify(program, reference, inputs, devices=devices, **options)
    assert found.verdict is Verdict.FAIL
    assert re.search(words, found.reason), found.reason
    assert re.search(r"\(\S*test_shards_by_themselves\.py:\d+", found.reason), found.reason
    assert "IndexedSlices" not in found.reason


@pytest.mark.cases(1)
@pytest.mark.parametrize(("planted", "_words"), PARAMETERS)
def test_the_right_twin_passes(devices: Devices, planted: Callable[[Devices, bool], Planted], _words: str) -> None:
    program, reference, inputs, options = planted(devices, False)
    found = verify(program, reference, inputs, devices=devices, **options)
    assert found.verdict is Verdict.PASS, found
