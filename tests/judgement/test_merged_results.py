"""What shards have is merged in a wrong way before the program goes on: the wrong intermediate result is told."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from harness import Devices, Verdict, verify
from harness.faults.samples import sample

Fn = Callable[..., Any]
#: The program on these devices, faulty or right, and the reference.
Pair = tuple[Fn, Fn]


def on_each(devices: Devices, fn: Fn, parts: Any) -> list[Any]:
    made = []
    for device, part in zip(devices, parts, strict=True):
        with tf.device(device.name):
            made.append(fn(part))
    return made


def shards(devices: Devices, fn: Fn, x: Any) -> list[Any]:
    return on_each(devices, fn, tf.split(x, len(devices)))


def normalised(devices: Devices, merge: Fn) -> Fn:
    """Batch normalisation whose statistics ``merge`` makes of the shards' rows."""

    def program(x: Any) -> Any:
        parts = [tf.identity(part) for part in tf.split(x, len(devices))]
        mean, variance = merge(parts, int(x.shape[0]))
        return tf.concat(
            on_each(devices, lambda part: tf.tanh((part - mean) * tf.math.rsqrt(variance + 0.1)), parts), 0
        )

    return program


def batch_norm(x: Any) -> Any:
    mean, variance = tf.nn.moments(x, [0])
    return tf.tanh((x - mean) * tf.math.rsqrt(variance + 0.1))


def by_squares(devices: Devices, divisor: Callable[[int], int]) -> Fn:
    def merge(parts: list[Any], rows: int) -> Any:
        mean = tf.add_n(on_each(devices, lambda part: tf.reduce_sum(part, 0), parts)) / rows
        squares = on_each(devices, lambda part: tf.reduce_sum(tf.square(part - mean), 0), parts)
        return mean, tf.add_n(squares) / divisor(rows)

    return merge


def mean_of_variances(devices: Devices) -> Fn:
    def merge(parts: list[Any], _: int) -> Any:
        means = on_each(devices, lambda part: tf.reduce_mean(part, 0), parts)
        variances = on_each(devices, lambda part: tf.math.reduce_variance(part, 0), parts)
        return tf.add_n(means) / len(parts), tf.add_n(variances) / len(parts)

    return merge


def divisor(devices: Devices, wrong: bool) -> Pair:
    return normalised(devices, by_squares(devices, lambda rows: rows - 1 if wrong else rows)), batch_norm


def variances(devices: Devices, wrong: bool) -> Pair:
    right = by_squares(devices, lambda rows: rows)
    return normalised(devices, mean_of_variances(devices) if wrong else right), batch_norm


def softmax(devices: Devices, wrong: bool) -> Pair:
    """A softmax over the rows, whose logarithm of sums is merged by its maximum."""

    def program(x: Any) -> Any:
        parts = [tf.identity(part) for part in tf.split(x, len(devices))]
        sums = tf.stack(on_each(devices, lambda part: tf.reduce_logsumexp(part, 0), parts))
        total = tf.reduce_max(sums, 0) if wrong else tf.reduce_logsumexp(sums, 0)
        return tf.concat(on_each(devices, lambda part: tf.exp(part - total), parts), 0)

    return program, lambda x: tf.exp(x - tf.reduce_logsumexp(x, 0))


def flags(devices: Devices, wrong: bool) -> Pair:
    def program(x: Any) -> Any:
        each = tf.stack(shards(devices, lambda part: tf.reduce_any(part > 1.0, 0), x))
        return tf.reduce_all(each, 0) if wrong else tf.reduce_any(each, 0)

    return program, lambda x: tf.reduce_any(x > 1.0, 0)


def norms(devices: Devices, wrong: bool) -> Pair:
    def program(x: Any) -> Any:
        parts = [tf.identity(part) for part in tf.split(x, len(devices))]
        squares = on_each(devices, lambda part: tf.reduce_sum(tf.square(part)), parts)
        norm = tf.add_n([tf.sqrt(each) for each in squares]) if wrong else tf.sqrt(tf.add_n(squares))
        return tf.concat(on_each(devices, lambda part: tf.tanh(part / norm), parts), 0)

    return program, lambda x: tf.tanh(x / tf.norm(x))


def added_twice(devices: Devices, wrong: bool) -> Pair:
    def program(x: Any) -> Any:
        parts = [tf.identity(part) for part in tf.split(x, len(devices))]
        total = tf.add_n(on_each(devices, lambda part: tf.reduce_sum(part, 0), parts))
        total = tf.add_n([total] * 3) if wrong else total
        return tf.concat(on_each(devices, lambda part: part - total / x.shape[0], parts), 0)

    return program, lambda x: x - tf.reduce_mean(x, 0)


CASES: list[tuple[Callable[[Devices, bool], Pair], str]] = [
    (divisor, r"RealDiv.* it is 12/11 times the result of Mean"),
    (variances, r"RealDiv.* it is the mean over the shards of what the reference's Mean .* gives for each shard"),
    (softmax, r"Max.* it is the maximum over the shards of what the reference's"),
    (flags, r"All.* it is the logical AND over the shards of what the reference's Any"),
    (norms, r"AddN.* it is the sum over the shards of what the reference's Sqrt"),
    (added_twice, r"RealDiv.* which is 3 times the result of Mean"),
]


@pytest.mark.cases("flags", "added_twice", "variances")
@pytest.mark.parametrize(("pair", "words"), CASES, ids=[pair.__name__ for pair, _ in CASES])
def test_what_a_wrong_merge_is_to_the_reference_is_told(
    devices: Devices, pair: Callable[[Devices, bool], Pair], words: str
) -> None:
    x = {"x": sample(12, 5)}
    program, reference = pair(devices, True)
    found = verify(program, reference, x, devices=devices)
    assert found.verdict is Verdict.FAIL
    assert re.search(words, found.reason), found
    assert "test_merged_results.py" in found.reason
    program, reference = pair(devices, False)
    right = verify(program, reference, x, devices=devices)
    assert not any(each.kind == "value" for each in right.findings), right
