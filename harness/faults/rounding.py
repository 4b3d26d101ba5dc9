"""Another order of summation, which is no fault (V21), beside an error that only looks like rounding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault
from harness.faults.samples import on_each, sample
from harness.faults.slips import Towers, slip
from harness.lazy import tf


def _sum(x: Any, lost: float) -> Callable[[Devices], Case]:
    """The sum of the shards' sums of ``x``; the faulty one lacks the fraction ``lost``."""

    def total(t: Towers, x: Any, factor: float) -> Any:
        return t.sum(lambda part: tf.reduce_sum(part, axis=0) * tf.constant(factor, x.dtype), x)

    return slip(
        lambda _, x: tf.reduce_sum(x, axis=0),
        partial(total, factor=1.0 - lost),
        partial(total, factor=1.0),
        inputs=lambda _: {"x": x},
    )


def _product(_: Towers, x: Any) -> Any:
    return tf.matmul(x, tf.constant(sample(64, 8, seed=2)))


def _products(t: Towers, x: Any) -> Any:
    return t.joined(partial(_product, t), x)


def _one_element_wrong(t: Towers, x: Any) -> Any:
    """One of many results is wrong by 1e-3 of itself, which a norm over all of them would hide."""
    result = _products(t, x)
    largest = tf.argmax(tf.abs(tf.reshape(result, [-1])))
    return result * (1.0 - 1e-3 * tf.reshape(tf.one_hot(largest, tf.size(result)), tf.shape(result)))


def _last_coarse(t: Towers, x: Any) -> Any:
    """The last tower computes in half precision, unlike the others and the reference."""

    def half(part: Any) -> Any:
        weights = tf.cast(tf.constant(sample(64, 8, seed=2)), tf.float16)
        return tf.cast(tf.matmul(tf.cast(part, tf.float16), weights), tf.float32)

    towers = [partial(_product, t)] * (t.count - 1) + [half]
    return tf.concat(on_each(t.names, lambda tower, part: tower(part), towers, t.split(x)), axis=0)


def _rows_of_64(count: int) -> dict[str, Any]:
    return {"x": sample(8 * count, 64)}


FAULTS = (
    Fault(
        "V21-long-sum",
        "1 part in 1,000 lost from a sum in a different order",
        "tensorflow 2732",
        _sum(sample(1000, 3) + 1, 1e-3),
        r"0\.999 times",
        rule="C403",
    ),
    Fault(
        "V21-large-numbers",
        "1 part in 1,000 lost from sums of numbers near 1e6",
        "tensorflow 2732",
        _sum(1e6 * (sample(1000, 3) + 1), 1e-3),
        r"0\.999 times",
        rule="C403",
    ),
    Fault(
        "V21-float16",
        "1 part in 10 lost from sums in float16",
        "tensorflow 2732",
        _sum((sample(64, 3) + 2).astype("float16"), 0.1),
        r"0\.9001? times",
        rule="C403",
    ),
    # 1e-9 is a fault in float64.
    Fault(
        "V21-float64",
        "1 part in 1e9 lost from sums in float64",
        "tensorflow 2732",
        _sum(sample(1000, 3).astype("float64") + 1, 1e-9),
        r"0\.999999999 times",
        rule="C403",
    ),
    Fault(
        "V21-one-element",
        "one of many elements wrong by 1 part in 1,000",
        "tensorflow 2732",
        slip(_product, _one_element_wrong, _products, inputs=_rows_of_64),
        r"1 of \d+ elements differ",
        rule="C900",
    ),
    Fault(
        "V21-coarse-tower",
        "one tower in half precision",
        "made up for this list",
        slip(_product, _last_coarse, _products, inputs=_rows_of_64),
        "computes in float16 instead of float32",
        rule="C408",
    ),
)
