"""Another order of summation, which is no fault (V21), beside an error that only looks like rounding."""

from __future__ import annotations

from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds, planted
from harness.faults.samples import per_shard, sample, shares
from harness.lazy import tf

FAULTS: list[Fault[Case]] = []


def _sum(devices: Devices, x: Any, lost: float) -> Case:
    """The sum of the shards' sums; the faulty one lacks the fraction ``lost``."""
    count = len(devices)
    sizes = shares(len(x), count)

    def reference(x: Any) -> Any:
        return tf.reduce_sum(x, axis=0)

    def total(x: Any, factor: float) -> Any:
        return tf.add_n(per_shard(devices, x, sizes, lambda part: reference(part) * tf.constant(factor, x.dtype)))

    def parallel(x: Any) -> Any:
        return total(x, 1.0 - lost)

    def twin(x: Any) -> Any:
        return total(x, 1.0)

    return Case(parallel, twin, reference, {"x": x}, kinds("value"))


@planted(
    FAULTS,
    "V21-long-sum",
    "a different order of summation, and 1 part in 1,000 lost",
    "tensorflow 2732",
    r"0\.999 times",
)
def _long_sum(devices: Devices) -> Case:
    return _sum(devices, sample(1000, 3) + 1, 1e-3)


@planted(
    FAULTS,
    "V21-large-numbers",
    "1 part in 1,000 lost from sums of numbers near 1e6",
    "tensorflow 2732",
    r"0\.999 times",
)
def _large_numbers(devices: Devices) -> Case:
    return _sum(devices, 1e6 * (sample(1000, 3) + 1), 1e-3)


@planted(FAULTS, "V21-float16", "1 part in 10 lost from sums in float16", "tensorflow 2732", r"0\.9001? times")
def _half_precision(devices: Devices) -> Case:
    return _sum(devices, (sample(64, 3) + 2).astype("float16"), 0.1)


@planted(FAULTS, "V21-float64", "1 part in 1e9 lost from sums in float64", "tensorflow 2732", r"0\.999999999 times")
def _double_precision(devices: Devices) -> Case:
    """1e-9 is a fault in float64."""
    return _sum(devices, sample(1000, 3).astype("float64") + 1, 1e-9)


@planted(FAULTS, "V21-one-element", "one element of many wrong by 1e-3", "tensorflow 2732", r"1 of \d+ elements differ")
def _one_element(devices: Devices) -> Case:
    """One of many results is wrong by 1e-3 of itself, which a norm over all of them would hide."""
    count = len(devices)
    weights = tf.Variable(sample(64, 8, seed=2))

    def reference(x: Any) -> Any:
        return tf.matmul(x, weights)

    def joined(x: Any) -> Any:
        return tf.concat(per_shard(devices, x, [8] * count, reference), axis=0)

    def parallel(x: Any) -> Any:
        result = joined(x)
        largest = tf.argmax(tf.abs(tf.reshape(result, [-1])))
        return result * (1.0 - 1e-3 * tf.reshape(tf.one_hot(largest, tf.size(result)), tf.shape(result)))

    return Case(parallel, joined, reference, {"x": sample(8 * count, 64)}, kinds("value"))


@planted(
    FAULTS, "V21-coarse-tower", "one tower in half precision", "own attack", "computes in float16 instead of float32"
)
def _coarse_tower(devices: Devices) -> Case:
    """The last tower computes in half precision, unlike the others and the reference."""
    count = len(devices)
    weights = tf.constant(sample(64, 8, seed=2))

    def reference(x: Any) -> Any:
        return tf.matmul(x, weights)

    def half(x: Any) -> Any:
        return tf.cast(tf.matmul(tf.cast(x, tf.float16), tf.cast(weights, tf.float16)), tf.float32)

    def joined(x: Any, last: Any) -> Any:
        *parts, rest = tf.split(x, count)
        outputs = per_shard(devices[:-1], tf.concat(parts, axis=0), [8] * (count - 1), reference)
        return tf.concat([*outputs, *per_shard(devices[-1:], rest, [8], last)], axis=0)

    return Case(
        lambda x: joined(x, half),
        lambda x: joined(x, reference),
        reference,
        {"x": sample(8 * count, 64)},
        kinds("value"),
    )
