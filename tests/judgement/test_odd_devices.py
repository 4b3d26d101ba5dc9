"""A device that does something else than the others is named, also where the reference does nothing like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from harness import Devices, Verdict, verify
from harness.faults.samples import sample

pytestmark = pytest.mark.devices(min=4)
Made = tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]


def joined(devices: Devices, work: Callable[[int, Any], Any], x: Any) -> Any:
    results = []
    for number, (device, part) in enumerate(zip(devices, tf.split(x, len(devices)), strict=True)):
        with tf.device(device.name):
            results.append(work(number, part))
    return tf.concat(results, 0)


def stages_on_one_line(devices: Devices, wrong: bool) -> Made:
    def slope(y: Any) -> Any:
        return tf.tanh(y) - 0.3 * y

    # fmt: off
    def stepped(y: Any, middle: float = 0.25) -> Any:
        k1 = slope(y); k2 = slope(y + 0.25 * k1); k3 = slope(y + middle * k2); return y + 0.1 * (k1 + 2.0 * k2 + 2.0 * k3)  # noqa: E501, E702
    # fmt: on

    def parallel(y: Any) -> Any:
        return joined(devices, lambda number, own: stepped(own, 0.5 if wrong and number == 2 else 0.25), y)

    return parallel, stepped, {"y": sample(8, 5)}


def stages_in_a_loop(devices: Devices, wrong: bool) -> Made:
    def stepped(y: Any, shares: tuple[float, ...] = (0.0, 0.25, 0.3, 0.7)) -> Any:
        slope = total = tf.zeros_like(y)
        for share in shares:
            slope = tf.tanh(y + share * slope)
            total = total + 2.0 * slope
        return total

    def parallel(y: Any) -> Any:
        other = (0.0, 0.25, 0.3, 0.6)
        return joined(devices, lambda at, own: stepped(own, other) if wrong and at == 1 else stepped(own), y)

    return parallel, stepped, {"y": sample(8, 5)}


def largest_of_a_shard(devices: Devices, wrong: bool) -> Made:
    """The reference's softmax is one op: it has no maximum of its own."""

    def parallel(x: Any) -> Any:
        parts, largest = tf.split(x, 4, 1), []
        for device, part in zip(devices, parts, strict=True):
            with tf.device(device.name):
                largest.append(tf.reduce_max(part, 1, keepdims=True))
        most = tf.reduce_max(tf.concat(largest, 1), 1, keepdims=True)
        powers = []
        for number, (device, part) in enumerate(zip(devices, parts, strict=True)):
            with tf.device(device.name):
                powers.append(tf.exp(part - (largest[1] if wrong and number == 1 else most)))
        return tf.concat(powers, 1) / tf.add_n([tf.reduce_sum(each, 1, keepdims=True) for each in powers])

    return parallel, lambda x: tf.nn.softmax(x), {"x": sample(6, 16)}


def shares_of_bins(devices: Devices, wrong: bool) -> Made:
    def counted(x: Any) -> Any:
        return tf.histogram_fixed_width(x, [-2.0, 2.0], 8)

    def shares(counts: Any) -> Any:
        return tf.cast(counts, tf.float32) / tf.cast(tf.reduce_sum(counts), tf.float32)

    def parallel(x: Any) -> Any:
        counts = joined(devices, lambda _, own: counted(own)[tf.newaxis], x)
        return shares((tf.reduce_max if wrong else tf.reduce_sum)(counts, 0))

    return parallel, lambda x: shares(counted(x)), {"x": sample(64)}


def repeated_columns(devices: Devices, wrong: bool) -> Made:
    def pooled(x: Any, count: int = 3) -> Any:
        return tf.reduce_mean(tf.reshape(tf.repeat(x, count, axis=1)[:, :8], [-1, 4, 2]) ** 2, 2)

    def parallel(x: Any) -> Any:
        return joined(devices, lambda number, own: pooled(own, 2 if wrong and number == 1 else 3), x)

    return parallel, pooled, {"x": sample(8, 4)}


def repeated_rows(devices: Devices, wrong: bool) -> Made:
    def spread(x: Any, count: int = 3) -> Any:
        return tf.repeat(tf.sin(x), count, axis=0)

    def parallel(x: Any) -> Any:
        return joined(devices, lambda number, own: spread(own, 2 if wrong and number == 1 else 3), x)

    return parallel, spread, {"x": sample(8, 4)}


def attention_in_blocks(devices: Devices, wrong: bool) -> Made:
    """A block that one shard leaves out; what all devices do differs from the reference and is right."""

    def parallel(q: Any, k: Any, v: Any) -> Any:
        keys, values = tf.split(k, 4), tf.split(v, 4)

        def attended(number: int, own: Any) -> Any:
            most, total, result = tf.fill([2, 1], -1e30), tf.zeros([2, 1]), tf.zeros([2, 4])
            for hop in range(3 if wrong and number == 2 else 4):
                at = (number + hop) % 4
                scores = tf.matmul(own, keys[at], transpose_b=True)
                new = tf.maximum(most, tf.reduce_max(scores, 1, keepdims=True))
                powers, shrink = tf.exp(scores - new), tf.exp(most - new)
                total = total * shrink + tf.reduce_sum(powers, 1, keepdims=True)
                result = result * shrink + powers @ values[at]
                most = new
            return result / total

        return joined(devices, attended, q)

    def reference(q: Any, k: Any, v: Any) -> Any:
        return tf.nn.softmax(tf.matmul(q, k, transpose_b=True)) @ v

    return parallel, reference, {name: sample(8, 4, seed=seed) for seed, name in enumerate("qkv")}


def distances_in_blocks(devices: Devices, wrong: bool) -> Made:
    def density(x: Any, other: Any) -> Any:
        return tf.reduce_sum(tf.exp(-tf.reduce_sum((x[:, tf.newaxis] - other) ** 2, -1)), 1)

    def parallel(x: Any) -> Any:
        parts = tf.split(x, 4)

        def summed(number: int, own: Any) -> Any:
            total = tf.zeros([2])
            for hop in range(3 if wrong and number == 1 else 4):
                total = total + density(own, parts[(number + hop) % 4])
            return total

        return joined(devices, summed, x)

    return parallel, lambda x: density(x, x), {"x": sample(8, 3)}


def triangle_of_a_decomposition(devices: Devices, wrong: bool) -> Made:
    """A QR decomposition leaves the signs open."""

    def fixed(r: Any) -> Any:
        return r * tf.sign(tf.linalg.diag_part(r))[:, tf.newaxis]

    def parallel(x: Any) -> Any:
        r = tf.linalg.qr(joined(devices, lambda _, own: tf.linalg.qr(own)[1], x))[1]
        other = fixed(r) * tf.constant([[1.0], [-1.0], [1.0], [-1.0]])
        return other if wrong else fixed(r)

    return parallel, lambda x: fixed(tf.linalg.qr(x)[1]), {"x": sample(32, 4)}


CASES = [
    (stages_on_one_line, ("it reads the constant 0.5 where the reference reads 0.25",), "reads 2"),
    (stages_in_a_loop, ("it reads the constant 0.6 where the reference reads 0.7",), "reads 2"),
    (
        largest_of_a_shard,
        ("Sub on", "it reads the result of Max", "but on the other devices it reads", "which makes the results right"),
        "the first op that differs",
    ),
    (shares_of_bins, ("Max", "it joins the parts; replacing it with Sum makes the results right"), "no equal"),
    (repeated_columns, ("Tile: it reads [1, 1, 2], but on", "[1, 1, 3]"), "no equal"),
    (repeated_rows, ("Tile on", "it reads [1, 2, 1], but on", "[1, 3, 1]"), "no equal"),
    (attention_in_blocks, ("MatMul runs 3 times on", "but 4 times on the other devices"), "the first op"),
    (distances_in_blocks, ("runs 3 times on", "but 4 times on the other devices"), "the first op"),
    (triangle_of_a_decomposition, ("some elements of output have the opposite sign",), "across the rows"),
]


@pytest.mark.cases(
    "shares_of_bins", "largest_of_a_shard", "triangle_of_a_decomposition", "distances_in_blocks", "repeated_columns"
)
@pytest.mark.parametrize(("make", "said", "unsaid"), [pytest.param(*case, id=case[0].__name__) for case in CASES])
def test_what_one_device_does_otherwise_is_named(
    devices: Devices, make: Callable[[Devices, bool], Made], said: tuple[str, ...], unsaid: str
) -> None:
    wrong, right = (verify(*make(devices[:4], each), devices=devices[:4], gradients=False) for each in (True, False))

    assert wrong.verdict is Verdict.FAIL
    for words in said:
        assert words.lower() in wrong.reason.lower()
    assert unsaid not in wrong.reason
    assert right.verdict is Verdict.PASS, right.reason
