"""Totals that are overwritten, and chains of additions with a wrong member, are named where that happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from harness import Devices, Verdict, verify
from harness.faults.samples import integers, sample

pytestmark = pytest.mark.devices(min=4)
Made = tuple[Callable[..., Any], Callable[..., Any], dict[str, Any], list[Any]]
Make = Callable[[Devices, bool], Made]
CHECKED: dict[str, Any] = {"gradients": False}


def on_each(devices: Devices, work: Callable[[Any], Any], x: Any) -> list[Any]:
    results = []
    for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
        with tf.device(device.name):
            results.append(work(part))
    return results


def hidden(x: Any) -> Any:
    return tf.tanh(x @ tf.constant(sample(6, 4)))


def summed(x: Any) -> Any:
    return tf.reduce_sum(hidden(x), 0)


def gram(x: Any) -> Any:
    return tf.matmul(hidden(x), hidden(x), transpose_a=True)


def returned_total(devices: Devices, wrong: bool) -> Made:
    total = tf.Variable(tf.zeros([4]))

    def parallel(x: Any) -> Any:
        total.assign(tf.zeros([4]))
        for part in on_each(devices, summed, x):
            total.assign(part) if wrong else total.assign_add(part)
        return total.read_value()

    def reference(x: Any) -> Any:
        total.assign(summed(x))
        return total.read_value()

    return parallel, reference, {"x": sample(8, 6)}, [total]


def total_over_a_count(devices: Devices, wrong: bool) -> Made:
    total, count = tf.Variable(0.0), tf.Variable(0.0)

    def reset() -> None:
        total.assign(0.0)
        count.assign(0.0)

    def parallel(x: Any) -> Any:
        reset()
        for part in on_each(devices, lambda rows: tf.reduce_sum(hidden(rows)), x):
            total.assign(part) if wrong else total.assign_add(part)
            count.assign_add(2.0)
        return total / count

    def reference(x: Any) -> Any:
        reset()
        total.assign_add(tf.reduce_sum(hidden(x)))
        count.assign_add(8.0)
        return total / count

    return parallel, reference, {"x": sample(8, 6)}, [total, count]


def counts_of_values(devices: Devices, wrong: bool) -> Made:
    counts = tf.Variable(tf.zeros([8], tf.int32))

    def counted(x: Any) -> Any:
        return tf.reduce_sum(tf.one_hot(x, 8, dtype=tf.int32), 0)

    def shares() -> Any:
        return tf.cast(counts, tf.float32) / 40.0

    def parallel(x: Any) -> Any:
        counts.assign(tf.zeros([8], tf.int32))
        for part in on_each(devices, counted, x):
            counts.assign(part) if wrong else counts.assign_add(part)
        return shares()

    def reference(x: Any) -> Any:
        counts.assign(counted(x))
        return shares()

    return parallel, reference, {"x": integers(8, 40)}, [counts]


def total_that_goes_on(devices: Devices, wrong: bool) -> Made:
    total = tf.Variable(sample(4, seed=5))

    def parallel(x: Any) -> None:
        for part in on_each(devices, summed, x):
            total.assign(part) if wrong else total.assign_add(part)

    def reference(x: Any) -> None:
        total.assign_add(summed(x))

    return parallel, reference, {"x": sample(8, 6)}, [total]


def one_assigns(devices: Devices, wrong: bool) -> Made:
    total = tf.Variable(tf.zeros([4]))

    def parallel(x: Any) -> Any:
        total.assign(tf.zeros([4]))
        for number, part in enumerate(on_each(devices, summed, x)):
            total.assign(part) if wrong and number == 2 else total.assign_add(part)
        return tf.sqrt(tf.abs(total))

    def reference(x: Any) -> Any:
        total.assign(summed(x))
        return tf.sqrt(tf.abs(total))

    return parallel, reference, {"x": sample(8, 6)}, [total]


def gradients_that_are_applied(devices: Devices, wrong: bool) -> Made:
    weights, held = tf.Variable(sample(4, 4)), tf.Variable(tf.zeros([4, 4]))

    def parallel(x: Any) -> None:
        held.assign(tf.zeros([4, 4]))
        for part in on_each(devices, gram, x):
            held.assign(part) if wrong else held.assign_add(part)
        weights.assign_sub(0.1 * held)
        held.assign(tf.zeros([4, 4]))

    def reference(x: Any) -> None:
        weights.assign_sub(0.1 * gram(x))

    return parallel, reference, {"x": sample(8, 6)}, [weights, held]


OVERWRITTEN = (
    returned_total,
    total_over_a_count,
    counts_of_values,
    total_that_goes_on,
    one_assigns,
    gradients_that_are_applied,
)


@pytest.mark.cases("total_that_goes_on")
@pytest.mark.parametrize("make", OVERWRITTEN, ids=lambda make: make.__name__)
def test_the_write_that_overwrites_what_another_shard_added_is_named(devices: Devices, make: Make) -> None:
    wrong, right = (
        verify(parallel, reference, inputs, devices=devices[:4], variables=variables)
        for parallel, reference, inputs, variables in (make(devices[:4], True), make(devices[:4], False))
    )

    assert wrong.verdict is Verdict.FAIL
    assert "it overwrites " in wrong.reason
    assert ", which no op has read (tests/judgement/test_totals_and_chains.py:" in wrong.reason
    assert "training step" not in wrong.reason
    assert right.verdict is Verdict.PASS, right.reason


def chain(parts: list[Any], how: str) -> Any:
    """The parts in a chain of additions: as they should be, or with a wrong member."""
    one, two, three, four = parts
    if how == "instead":
        return one + two + two + four
    if how == "in pairs":
        return (one + two) + (three + three)
    if how == "missing":
        return one + two + four
    if how == "doubled":
        return one + two + three + three + four
    return sum([one, two, three, four])


CHAINS = [
    ("instead", "adds the result of MatMul", "twice, and leaves out that of MatMul"),
    ("in pairs", "adds the result of MatMul", "twice, and leaves out that of MatMul"),
    ("missing", "leaves out the result of MatMul", "no op reads it"),
    ("doubled", "adds the result of MatMul", "twice ("),
]


@pytest.mark.cases("missing")
@pytest.mark.parametrize(("how", "said", "and_said"), CHAINS, ids=[case[0] for case in CHAINS])
def test_a_wrong_member_of_a_chain_of_additions_is_named(devices: Devices, how: str, said: str, and_said: str) -> None:
    def program(how: str) -> Callable[[Any], Any]:
        return lambda x: tf.sqrt(tf.abs(chain(on_each(devices[:4], gram, x), how)) + 1.0)

    wrong, right = (
        verify(
            program(each), lambda x: tf.sqrt(tf.abs(gram(x)) + 1.0), {"x": sample(8, 6)}, devices=devices[:4], **CHECKED
        )
        for each in (how, "right")
    )

    assert wrong.verdict is Verdict.FAIL
    assert f"AddV2 {said}" in wrong.reason
    assert and_said in wrong.reason
    assert right.verdict is Verdict.PASS, right.reason


@pytest.mark.parametrize("added_at_once", [False, True])
def test_a_part_that_is_computed_in_another_way_is_named_and_not_the_chain(
    devices: Devices, added_at_once: bool
) -> None:
    def program(x: Any, wrong: bool) -> Any:
        total: Any = None
        parts = []
        for number, (device, rows) in enumerate(zip(devices[:4], tf.split(x, 4), strict=True)):
            with tf.device(device.name):
                own = tf.nn.relu(rows) if wrong and number == 2 else tf.tanh(rows)
                parts.append(tf.matmul(own, own, transpose_a=True))
            total = parts[-1] if total is None else total + parts[-1]
        return tf.sqrt(tf.abs(sum(parts) if added_at_once else total) + 1.0)

    def reference(x: Any) -> Any:
        return tf.sqrt(tf.abs(tf.matmul(tf.tanh(x), tf.tanh(x), transpose_a=True)) + 1.0)

    wrong, right = (
        verify(lambda x, each=each: program(x, each), reference, {"x": sample(8, 6)}, devices=devices[:4], **CHECKED)
        for each in (True, False)
    )

    assert wrong.verdict is Verdict.FAIL
    assert f"{devices[2].parsed.short} runs Relu where the other devices run Tanh" in wrong.reason
    assert right.verdict is Verdict.PASS, right.reason


def test_means_that_are_added_up_are_named_and_so_is_what_a_shard_adds_by_itself(devices: Devices) -> None:
    def mean(x: Any) -> Any:
        return tf.reduce_mean(hidden(x), 0)

    def both(x: Any, again: bool = False) -> Any:
        one, two = tf.reduce_sum(tf.tanh(x), 0), tf.reduce_sum(tf.exp(x), 0)
        return one + (one if again else two)

    def added(x: Any) -> Any:
        return tf.nn.softplus(sum(on_each(devices[:4], mean, x)))

    def within(x: Any) -> Any:
        parts = []
        for number, (device, rows) in enumerate(zip(devices[:4], tf.split(x, 4), strict=True)):
            with tf.device(device.name):
                parts.append(both(rows, again=number == 1))
        return tf.nn.softplus(sum(parts))

    inputs = {"x": sample(8, 6)}
    means = verify(added, lambda x: tf.nn.softplus(mean(x)), inputs, devices=devices[:4], **CHECKED)
    within_one = verify(within, lambda x: tf.nn.softplus(both(x)), inputs, devices=devices[:4], **CHECKED)

    assert "AddV2" in means.reason
    assert "it reads Mean" in means.reason
    assert f"Sum on {devices[1].parsed.short}: its input equals the result of Tanh" in within_one.reason
