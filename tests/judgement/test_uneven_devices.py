"""Where the reference has no op to compare with, what one device runs in another way than the others is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
from harness import Devices, Verdict, verify
from harness.faults.samples import sample
from harness.judgement.verification import Verification

pytestmark = pytest.mark.devices(min=3)
Inside = Callable[[Any, int, int, int], Any]
TABLE = sample(12, 5)
IDS = np.array([0, 3, 4, 7, 8, 11, 2, 5, 9, 6, 1, 10], "int32")


def lookup(ids: Any) -> Any:
    return tf.gather(tf.constant(TABLE), ids)


def sharded_lookup(devices: Devices, inside: Inside, *, masked: Callable[[int], bool] = lambda _: True) -> Any:
    """Look rows up in a table that is cut by its rows: each device adds those that it has, and zeros for the others."""
    size = 12 // len(devices)

    def parallel(ids: Any) -> Any:
        total = tf.zeros([1, 5])
        for number, device in enumerate(devices):
            with tf.device(device.name):
                shard = tf.constant(TABLE)[size * number : size * (number + 1)]
                rows = tf.gather(shard, tf.clip_by_value(ids - size * number, 0, size - 1))
                if masked(number):
                    own = tf.cast(inside(ids, number, size * number, size * (number + 1)), tf.float32)
                    rows *= own[:, tf.newaxis]
            total += rows
        return total

    return parallel


def right(ids: Any, _number: int, low: int, high: int) -> Any:
    return (ids >= low) & (ids < high)


def with_an_end(ids: Any, number: int, low: int, high: int) -> Any:
    return (ids >= low) & ((ids <= high) if number == 1 else (ids < high))


def first(found: Verification) -> str:
    return found.reason.split("). ")[0]


def test_a_comparison_that_one_device_makes_in_another_way_is_named(devices: Devices) -> None:
    three = devices[:3]
    assert verify(sharded_lookup(three, right), lookup, {"ids": IDS}, devices=three).passed
    found = verify(sharded_lookup(three, with_an_end), lookup, {"ids": IDS}, devices=three)
    assert found.verdict is Verdict.FAIL, found
    name = three[1].parsed.short
    assert f"At one line, {name} runs LessEqual where the other devices run Less (tests/" in first(found), found
    assert "GreaterEqual" not in first(found), found


def test_of_two_devices_both_are_named(devices: Devices) -> None:
    two = devices[:2]
    # Beyond the end of the table, one comparison is as good as the other.
    assert verify(sharded_lookup(two, with_an_end), lookup, {"ids": IDS}, devices=two).passed

    def without_a_start(ids: Any, number: int, low: int, high: int) -> Any:
        return ((ids > low) if number == 1 else (ids >= low)) & (ids < high)

    found = verify(sharded_lookup(two, without_a_start), lookup, {"ids": IDS}, devices=two)
    there, here = (device.parsed.short for device in two)
    assert f"At one line, {here} runs Greater where {there} runs GreaterEqual (tests/" in first(found), found


def test_an_op_that_one_device_leaves_out_is_named(devices: Devices) -> None:
    three = devices[:3]
    program = sharded_lookup(three, right, masked=lambda number: number != 1)
    found = verify(program, lookup, {"ids": IDS}, devices=three)
    assert f"At one line, all devices but {three[1].parsed.short} run Mul (tests/" in first(found), found


def test_a_loop_that_one_device_runs_less_often_is_named(devices: Devices) -> None:
    """The reference computes in one op what the program computes in turns."""
    three, table = devices[:3], tf.constant(TABLE)

    def looked_up(ids: Any) -> Any:
        return tf.tanh(tf.gather(table, ids))

    def in_turns(turns: Callable[[int], int]) -> Callable[[Any], Any]:
        def parallel(ids: Any) -> Any:
            total = tf.zeros([1, 5])
            for number, device in enumerate(three):
                with tf.device(device.name):
                    part = tf.zeros([1, 5])
                    for turn in range(turns(number)):
                        row = 4 * number + turn
                        part += tf.cast(tf.equal(ids, row), tf.float32)[:, tf.newaxis] * tf.tanh(table[row])
                total += part
            return total

        return parallel

    assert verify(in_turns(lambda _: 4), looked_up, {"ids": IDS}, devices=three).passed
    found = verify(in_turns(lambda number: 4 - number % 2), looked_up, {"ids": IDS}, devices=three)
    said = f" runs 3 times on {three[1].parsed.short}, but 4 times on the other devices (tests/"
    assert said in first(found), found
    assert "all devices but" not in found.reason, found


def test_devices_that_do_the_same_are_not_said_to_differ(devices: Devices) -> None:
    """All devices make the same mistake."""
    three = devices[:3]
    everywhere = sharded_lookup(three, lambda ids, _, low, high: (ids > low) & (ids < high))
    found = verify(everywhere, lookup, {"ids": IDS}, devices=three)
    assert found.verdict is Verdict.FAIL, found
    assert "At one line" not in found.reason, found


def test_the_first_and_the_last_device_of_a_halo_may_differ(devices: Devices) -> None:
    """Edges have one neighbour: that is no fault, and the line of the weights is named."""
    three = devices[:3]

    def smooth(x: Any, edge: float = 0.25) -> Any:
        padded = tf.pad(x, [[1, 1], [0, 0]])
        return edge * padded[:-2] + 0.5 * padded[1:-1] + edge * padded[2:]

    def halo(x: Any, edge: float = 0.25) -> Any:
        parts, results = tf.split(x, 3), []
        for number, device in enumerate(three):
            with tf.device(device.name):
                rows = parts[number] * 0.5
                if number > 0:
                    rows += edge * tf.concat([parts[number - 1][-1:], parts[number][:-1]], 0)
                else:
                    rows += edge * tf.concat([tf.zeros_like(x[:1]), parts[0][:-1]], 0)
                if number < 2:
                    rows += edge * tf.concat([parts[number][1:], parts[number + 1][:1]], 0)
                else:
                    rows += edge * tf.concat([parts[2][1:], tf.zeros_like(x[:1])], 0)
                results.append(rows)
        return tf.concat(results, 0)

    x = {"x": sample(12, 4)}
    with harness.colocate_gradients():
        assert verify(halo, smooth, x, devices=three).passed
        found = verify(lambda x: halo(x, 0.2), smooth, x, devices=three)
    assert "At one line" not in found.reason, found


@pytest.mark.parametrize("wrong", [False, True])
def test_stages_may_run_different_ops_at_one_line(devices: Devices, wrong: bool) -> None:
    two, weights = devices[:2], [tf.constant(sample(6, 6)), tf.constant(sample(6, 3))]
    with tf.device(two[1].name):
        weights[1] = tf.identity(weights[1])

    def whole(x: Any) -> Any:
        return tf.sigmoid(tf.tanh(x @ weights[0]) @ weights[1])

    def staged(x: Any) -> Any:
        for device, weight, activation in zip(two, weights, (tf.tanh, tf.sigmoid), strict=True):
            with tf.device(device.name):
                x = activation(tf.abs(x @ weight) if wrong else x @ weight)
        return x

    found = verify(staged, whole, {"x": sample(8, 6)}, devices=two, pattern="stages")
    assert found.passed is not wrong, found
    assert "At one line" not in found.reason, found
    assert ("Abs" in first(found)) is wrong, found
