"""Indices of a part that lack its offset, rows of a variable that are not written, and tables with other values."""

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


def on_parts(devices: Devices, fn: Fn, x: Any, axis: int = 0) -> list[Any]:
    """``fn`` of the offset of each part and of the part."""
    size = int(x.shape[axis]) // len(devices)
    made = []
    for number, (device, part) in enumerate(zip(devices, tf.split(x, len(devices), axis), strict=True)):
        with tf.device(device.name):
            made.append(fn(number * size, part))
    return made


def best_word(devices: Devices, wrong: bool) -> Planted:
    """The columns of a variable are split, and no input is."""
    words = tf.Variable(sample(5, 24))

    def program(x: Any) -> Any:
        def best(offset: int, part: Any) -> Any:
            scores = tf.matmul(x, part)
            at = tf.argmax(scores, 1) + (0 if wrong else offset)
            return tf.reduce_max(scores, 1), at

        values, indices = zip(*on_parts(devices, best, words, 1), strict=True)
        return tf.gather(tf.stack(indices, 1), tf.argmax(tf.stack(values, 1), 1), batch_dims=1)

    return program, lambda x: tf.argmax(tf.matmul(x, words), 1), {"x": sample(9, 5)}


def nearest(devices: Devices, wrong: bool) -> Planted:
    """One index: so few numbers need more evidence than many."""

    def program(x: Any) -> Any:
        def near(offset: int, part: Any) -> Any:
            far = tf.reduce_sum(tf.square(part), 1)
            return tf.reduce_min(far), tf.argmin(far) + (0 if wrong else offset)

        values, indices = zip(*on_parts(devices, near, x), strict=True)
        return tf.gather(tf.stack(indices), tf.argmin(tf.stack(values)))

    x = sample(24, 3) + 2.0
    x[17] = 0.1
    return program, lambda x: tf.argmin(tf.reduce_sum(tf.square(x), 1)), {"x": x}


def best_keys(devices: Devices, wrong: bool) -> Planted:
    def program(query: Any, keys: Any) -> Any:
        def best(offset: int, part: Any) -> Any:
            values, indices = tf.math.top_k(tf.matmul(query, part, transpose_b=True), 3)
            return values, indices + (0 if wrong else offset)

        values, indices = (tf.concat(each, 1) for each in zip(*on_parts(devices, best, keys), strict=True))
        values, at = tf.math.top_k(values, 3)
        return values, tf.gather(indices, at, batch_dims=1)

    inputs = {"query": sample(4, 5, seed=1), "keys": sample(24, 5, seed=2)}
    return program, lambda query, keys: tuple(tf.math.top_k(tf.matmul(query, keys, transpose_b=True), 3)), inputs


def slices(devices: Devices, wrong: bool, skip: bool = False) -> Planted:
    memory, weights = tf.Variable(sample(12, 4)), tf.Variable(sample(3, 4, seed=1))

    def program(x: Any) -> Any:
        for offset, part in on_parts(devices, lambda offset, part: (offset, tf.tanh(tf.matmul(part, weights))), x):
            if skip and wrong and offset == 3:
                continue
            begin = offset - (1 if wrong and offset and not skip else 0)
            memory[begin : begin + 3].assign(part)
        return tf.reduce_sum(tf.square(memory))

    def reference(x: Any) -> Any:
        memory.assign(tf.tanh(tf.matmul(x, weights)))
        return tf.reduce_sum(tf.square(memory))

    return program, reference, {"x": sample(12, 3, seed=2)}


def a_slice_missing(devices: Devices, wrong: bool) -> Planted:
    return slices(devices, wrong, skip=True)


def tables(devices: Devices, wrong: bool) -> Planted:
    def table(value: int) -> Any:
        pairs = tf.lookup.KeyValueTensorInitializer(list("abcdef"), tf.constant([3, 1, 4, 0, value, 9], tf.int64))
        return tf.lookup.StaticHashTable(pairs, -1)

    right, other, embedded = table(5), table(6), tf.Variable(sample(10, 4))

    def program(words: Any) -> Any:
        made = []
        for number, (device, part) in enumerate(zip(devices, tf.split(words, len(devices)), strict=True)):
            ids = (other if wrong and number == 1 else right).lookup(part)
            with tf.device(device.name):
                made.append(tf.gather(tf.identity(embedded), ids))
        return tf.concat(made, 0)

    return program, lambda words: tf.gather(embedded, right.lookup(words)), {"words": np.array(list("abcdefeabcde"))}


def average(devices: Devices, wrong: bool) -> Planted:
    """Each device trains a copy of the variable; one copy is not averaged."""
    weights = tf.Variable(sample(4, 3))

    def trained(part: Any) -> Any:
        return weights - 0.1 * tf.matmul(part, tf.tanh(tf.matmul(part, weights)), transpose_a=True)

    def program(x: Any) -> Any:
        copies = on_parts(devices, lambda _, part: trained(part), x)
        weights.assign(tf.add_n(copies[: -1 if wrong else None]) / len(devices))
        return tf.identity(weights)

    def reference(x: Any) -> Any:
        weights.assign(tf.add_n([trained(part) for part in tf.split(x, len(devices))]) / len(devices))
        return tf.identity(weights)

    return program, reference, {"x": sample(12, 4)}


CASES: list[tuple[Callable[[Devices, bool], Planted], str]] = [
    (
        best_word,
        "lack the part's offset: in output, positions are counted from 0 in each of 4 parts, not once over all 24",
    ),
    (nearest, "in output, the rows are numbered from 0 in each shard, not once over the whole batch"),
    (best_keys, r"in output\[1\], the rows are numbered from 0 in each shard"),
    (slices, r"Rows 2 to 10 of .* get the values that belong in rows 3 to 11 and row 11 keeps its old value"),
    (a_slice_missing, "Rows 3 to 5 of .* keep their old values"),
    (tables, "LookupTableFindV2.* its table has different values for 1 of 3 keys, such as 6 instead of 5"),
    (average, "An addend is left out of "),
]


@pytest.mark.cases("a_slice_missing", "tables", "nearest", "best_word", "slices")
@pytest.mark.parametrize(("plant", "words"), CASES, ids=[plant.__name__ for plant, _ in CASES])
def test_the_fault_is_named_and_its_twin_passes(
    devices: Devices, plant: Callable[[Devices, bool], Planted], words: str
) -> None:
    found = verify(*plant(devices, True), devices=devices)
    assert found.verdict is Verdict.FAIL
    assert re.search(words, found.reason), found
    assert "test_positions_in_parts.py" in found.reason
    right = verify(*plant(devices, False), devices=devices)
    assert not any(each.kind == "value" for each in right.findings), right
