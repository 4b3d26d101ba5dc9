"""What is off by a factor lacks no shard; and what a program leaves out is named, also behind slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from two_device_case import Case, judged

from harness import Devices
from harness.faults.samples import sample

pytestmark = pytest.mark.devices(min=2)


def _variable(*shape: int, seed: int = 0) -> Any:
    return tf.Variable(sample(*shape, seed=seed) / 4)


def _each(devices: Devices, work: Callable[..., Any], *arrays: Any) -> list[Any]:
    results = []
    for device, *parts in zip(devices, *(tf.split(array, len(devices)) for array in arrays), strict=True):
        with tf.device(device.name):
            results.append(work(*parts))
    return results


def half_as_far(devices: Devices, wrong: bool) -> Case:
    """A copy of the weights follows them half as fast. Each shard alone moves it as far as all of them do."""
    weights, slow = _variable(6, 3), _variable(6, 3, seed=1)

    def update(slope: Any, rate: float) -> None:
        weights.assign_sub(0.01 * tf.sign(slope))
        slow.assign((1.0 - rate) * slow + rate * weights)

    def slope(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.exp(tf.matmul(x, weights))) / 8.0
        return tape.gradient(loss, weights)

    def parallel(x: Any) -> None:
        update(tf.add_n(_each(devices, slope, x)), 0.05 if wrong else 0.1)

    return Case(parallel, lambda x: update(slope(x), 0.1), {"x": abs(sample(8, 6))}, [weights, slow])


def without_a_shard(devices: Devices, wrong: bool) -> Case:
    """The second shard's gradient is not added. The momentum was zero before, in both programs."""
    weights, momentum = _variable(6, 3), tf.Variable(tf.zeros((6, 3)))

    def update(slope: Any) -> None:
        momentum.assign(0.9 * momentum + slope)
        weights.assign_sub(0.1 * momentum)

    def slope(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(tf.matmul(x, weights)) ** 2) / 8.0
        return tape.gradient(loss, weights)

    def parallel(x: Any) -> None:
        slopes = _each(devices, slope, x)
        update(slopes[0] if wrong else tf.add_n(slopes))

    return Case(parallel, lambda x: update(slope(x)), {"x": sample(8, 6)}, [weights, momentum])


def no_row_of_a_class(devices: Devices, wrong: bool) -> Case:
    """No row of the second shard is picked, whose mean is then no number; no shard is empty."""
    centre, weights = tf.Variable(tf.zeros((4,))), _variable(4, 4)

    def parallel(x: Any, kind: Any) -> Any:
        def work(rows: Any, kinds: Any) -> tuple[Any, Any, Any]:
            made = tf.matmul(rows, weights)
            picked = tf.boolean_mask(made, kinds > 0)
            number = tf.reduce_sum(tf.cast(kinds, tf.float32))
            return made, tf.reduce_mean(picked, 0) if wrong else tf.reduce_sum(picked, 0), number

        made, picked, numbers = zip(*_each(devices, work, x, kind), strict=True)
        centre.assign(tf.add_n(picked) / (2.0 if wrong else tf.add_n(numbers)))
        return tf.concat(made, 0)

    def reference(x: Any, kind: Any) -> Any:
        made = tf.matmul(x, weights)
        centre.assign(tf.reduce_mean(tf.boolean_mask(made, kind > 0), 0))
        return made

    return Case(parallel, reference, {"x": sample(6, 4), "kind": np.array([1, 0, 1, 0, 0, 0])}, [centre])


def shares_that_add_up_to_less(devices: Devices, wrong: bool) -> Case:
    """The shares of the experts are not divided by their sum; each expert reads a slice of them."""
    experts, gate = [_variable(6, 6, seed=each) for each in range(2)], _variable(6, 2, seed=5)

    def shares(x: Any, whole: bool) -> Any:
        kept = tf.nn.relu(tf.sigmoid(tf.matmul(x, gate)) - 0.1)
        return kept / tf.reduce_sum(kept, -1, keepdims=True) if whole else kept

    def expert(x: Any, number: int, of: Any) -> Any:
        return of[:, number : number + 1] * tf.nn.relu(tf.matmul(x, experts[number]))

    def parallel(x: Any) -> Any:
        of, results = shares(x, not wrong), []
        for number, device in enumerate(devices):
            with tf.device(device.name):
                results.append(expert(x, number, of))
        return tf.add_n(results)

    def reference(x: Any) -> Any:
        of = shares(x, True)
        return tf.add_n([expert(x, number, of) for number in range(2)])

    return Case(parallel, reference, {"x": sample(8, 6)}, [])


def second_loss(devices: Devices, wrong: bool) -> Case:
    """The gradient of the second loss is not asked for."""
    weights, gate = _variable(6, 4), _variable(6, 4, seed=1)

    def losses(x: Any) -> list[Any]:
        share = tf.nn.softmax(tf.matmul(x, gate))
        return [tf.reduce_sum(tf.matmul(x, weights) * share), tf.reduce_sum(share * share)]

    def work(x: Any, number: int = 2) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            found = losses(x)
        return found, tape.gradient(found[:number], [weights, gate])

    def update(slopes: Any) -> None:
        for variable, slope in zip((weights, gate), slopes, strict=True):
            variable.assign_sub(0.1 * slope)

    def parallel(x: Any) -> Any:
        found, slopes = zip(*_each(devices, lambda rows: work(rows, 1 if wrong else 2), x), strict=True)
        update([tf.add_n(each) for each in zip(*slopes, strict=True)])
        return [tf.add_n(each) for each in zip(*found, strict=True)]

    def reference(x: Any) -> Any:
        found, slopes = work(x)
        update(slopes)
        return found

    return Case(parallel, reference, {"x": sample(8, 6)}, [weights, gate])


CASES = [
    (half_as_far, "changed 1/2 times as much", "missing from"),
    (without_a_shard, r"includes only shard 0 \(CPU:0\)", "only zeros"),
    (no_row_of_a_class, "none is left of the rows of a shard, and .* is NaN for 0 rows", "is empty"),
    (
        shares_that_add_up_to_less,
        "it reads the result of .*; the reference reads what RealDiv .* makes",
        "StridedSlice",
    ),
    (second_loss, "the gradient of Sum is never asked for", "first op"),
]


@pytest.mark.parametrize(("make", "cause", "other"), CASES, ids=[make.__name__ for make, *_ in CASES])
def test_the_first_sentence_says_what_is_wrong_and_nothing_else(
    devices: Devices, make: Callable[..., Case], cause: str, other: str
) -> None:
    found = judged(devices, make, cause)
    assert other not in found.reason, found.reason
