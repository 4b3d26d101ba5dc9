"""Of the first op that differs it is said what it reads otherwise than the reference's: constants, rows, results."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, colocate_gradients, verify

X = np.random.default_rng(3).normal(size=(8, 4)).astype(np.float32)
W = np.random.default_rng(4).normal(size=(4, 4)).astype(np.float32) / 2

Program = Callable[[Devices, Any, bool], Any]


def in_towers(devices: Devices, x: Any, tower: Callable[[int, Any], Any]) -> list[Any]:
    parts = []
    for number, (device, part) in enumerate(zip(devices, tf.split(x, 4), strict=True)):
        with tf.device(device.name):
            parts.append(tower(number, part))
    return parts


def normed(x: Any, epsilon: float) -> Any:
    mean, variance = tf.nn.moments(x, (1,), keepdims=True)
    return (x - mean) / tf.sqrt(variance + epsilon)


def another_constant(devices: Devices, x: Any, wrong: bool) -> Any:
    return tf.concat(in_towers(devices, x, lambda _, part: normed(part, 0.5 if wrong else 0.1)), 0)  # at fault


def products(x: Any, exclusive: bool) -> Any:
    return tf.math.cumprod(tf.sigmoid(x), axis=1, exclusive=exclusive)


def another_attribute(devices: Devices, x: Any, wrong: bool) -> Any:
    return tf.concat(in_towers(devices, x, lambda _, part: products(part, wrong)), 0)  # at fault


def sixteen_bits(devices: Devices, x: Any, wrong: bool) -> Any:
    def tower(_: int, part: Any) -> Any:
        dtype = tf.float16 if wrong else tf.float32
        return tf.cast(tf.matmul(tf.cast(part, dtype), tf.cast(W, dtype)), tf.float32)  # at fault

    return tf.concat(in_towers(devices, x, tower), 0)


def logits(x: Any) -> Any:
    return tf.math.l2_normalize(tf.matmul(x, W), 1)


def labels_of_the_first_rows(devices: Devices, x: Any, wrong: bool) -> Any:
    rows = in_towers(devices, x, lambda _, part: logits(part))
    everything = tf.concat(rows, 0)

    def tower(number: int, part: Any) -> Any:
        labels = tf.range(2) + (0 if wrong else 2 * number)  # at fault
        scores = tf.matmul(logits(part), everything, transpose_b=True)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)

    return tf.concat(in_towers(devices, x, tower), 0)


def contrastive(x: Any) -> Any:
    rows = logits(x)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(8), tf.matmul(rows, rows, transpose_b=True))


def marked(x: Any, turned: bool) -> Any:
    marks = tf.cast(tf.argsort(x, axis=1), tf.float32)
    return logits(x) + tf.gather(marks, [1, 0] if turned else [0, 1])  # at fault


def rows_in_another_order(devices: Devices, x: Any, wrong: bool) -> Any:
    return tf.concat(in_towers(devices, x, lambda _, part: marked(part, wrong)), 0)


def slope(x: Any) -> Any:
    return tf.tanh(tf.matmul(x, W))


def two_steps(x: Any, again: bool) -> Any:
    one = slope(x)
    two = slope(x + one)
    three = slope(x + (one if again else two))  # at fault
    return x + one + two * 2.0 + three * 0.5


def a_step_from_another_result(devices: Devices, x: Any, wrong: bool) -> Any:
    return tf.concat(in_towers(devices, x, lambda number, part: two_steps(part, wrong and number == 2)), 0)


def bucket(x: Any, edges: list[float]) -> Any:
    return tf.searchsorted(tf.constant(edges), x, side="right") * 3


def another_bucket(devices: Devices, x: Any, wrong: bool) -> Any:
    def tower(number: int, part: Any) -> Any:
        edges = [-9.0, -1.0, 0.0, 1.0] if wrong and number == 1 else [-1.0, 0.0, 1.0]
        return bucket(part[:, 0], edges)  # at fault

    return tf.gather(np.eye(12, dtype=np.float32), tf.concat(in_towers(devices, x, tower), 0))


@pytest.mark.cases("attribute", "another order", "small integers")
@pytest.mark.parametrize(
    ("program", "reference", "at", "words"),
    [
        (
            another_constant,
            lambda x: normed(x, 0.1),
            another_constant,
            "the constant 0.5 where the reference reads 0.1",
        ),
        (
            another_attribute,
            lambda x: products(x, False),
            another_attribute,
            "exclusive=True where the reference has exclusive=False",
        ),
        (sixteen_bits, lambda x: tf.matmul(x, W), sixteen_bits, "computes in float16 instead of float32"),
        (labels_of_the_first_rows, contrastive, None, r"pairs rows 2 and 3 of MatMul .* with rows 0 and 1 of Range"),
        (
            rows_in_another_order,
            lambda x: logits(x) + tf.cast(tf.argsort(x, axis=1), tf.float32),
            marked,
            r"pairs rows 0 and 1 of \w+ .* with rows 0 and 1 of \w+ .* in another order",
        ),
        (a_step_from_another_result, lambda x: two_steps(x, False), two_steps, r"its input equals the result of "),
        (
            another_bucket,
            lambda x: tf.gather(np.eye(12, dtype=np.float32), bucket(x[:, 0], [-1.0, 0.0, 1.0])),
            None,
            "",
        ),
    ],
    ids=["constant", "attribute", "dtype", "rows", "another order", "another result", "small integers"],
)
def test_what_the_first_op_reads_otherwise_is_named(
    devices: Devices,
    program: Program,
    reference: Callable[..., Any],
    at: Callable[..., Any] | None,
    words: str,
) -> None:
    source, start = inspect.getsourcelines(at or program)
    line = start + next(number for number, text in enumerate(source) if "# at fault" in text)
    for wrong in (True, False):
        run = lambda x, wrong=wrong: program(devices, x, wrong)  # noqa: E731
        found = verify(run, reference, {"x": X}, devices=devices)
        if not wrong:
            assert found.verdict is Verdict.PASS, found
            continue
        first = found.reason.partition("). ")[0]
        assert found.verdict is Verdict.FAIL
        assert f"test_unlike_the_reference.py:{line}" in first, found
        assert re.search(words, first), found
        assert not words or "inputs are equal" not in first, found


def test_an_accumulator_that_is_not_reset_is_named_and_not_the_gradient_of_a_micro_batch(devices: Devices) -> None:
    weights = tf.Variable(W[:, :2])

    def training(wrong: bool) -> Callable[..., Any]:
        def step(x: Any) -> None:
            total = []
            sums = tf.zeros_like(weights)
            for device, part in zip(devices, tf.split(x, 4), strict=True):
                with tf.device(device.name):
                    sums = sums if wrong else tf.zeros_like(weights)
                    for rows in tf.split(part, 2):
                        with tf.GradientTape() as tape:
                            loss = tf.reduce_sum(tf.exp(tf.matmul(rows, weights)))
                        sums = sums + tape.gradient(loss, weights)  # the accumulator
                    total.append(sums)
            weights.assign_sub(0.01 * tf.add_n(total))

        return step

    def single(x: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.exp(tf.matmul(x, weights)))
        weights.assign_sub(0.01 * tape.gradient(loss, weights))

    source, start = inspect.getsourcelines(training)
    line = start + next(number for number, text in enumerate(source) if "# the accumulator" in text)
    x = np.random.default_rng(5).normal(size=(16, 4)).astype(np.float32)
    found = verify(colocate_gradients(training(True)), single, {"x": x}, devices=devices, variables=[weights])
    assert f"test_unlike_the_reference.py:{line}" in found.reason.partition("). ")[0], found
    clean = verify(colocate_gradients(training(False)), single, {"x": x}, devices=devices, variables=[weights])
    assert clean.passed, clean


def test_a_share_of_the_rows_is_not_said_to_be_divided_by_another_number_of_rows(devices: Devices) -> None:
    hits = tf.Variable(0.0, trainable=False)

    def counting(wrong: bool) -> Callable[..., Any]:
        def count(x: Any) -> Any:
            for device, part in zip(devices, tf.split(x, 4), strict=True):
                with tf.device(device.name):
                    found = tf.reduce_sum(tf.cast(part > 0.0, tf.float32))
                hits.assign(found) if wrong else hits.assign_add(found)
            return hits / 16.0

        return count

    def single(x: Any) -> Any:
        hits.assign_add(tf.reduce_sum(tf.cast(x > 0.0, tf.float32)))
        return hits / 16.0

    x = np.repeat([1.0, -1.0, 1.0, 1.0, 1.0], [3, 1, 4, 3, 5]).astype(np.float32)
    x[-3:] = -1.0  # 12 of 16, and 1 or 2 in the last shard
    found = verify(counting(True), single, {"x": x}, devices=devices, variables=[hits])
    assert found.verdict is Verdict.FAIL
    assert "are divided by" not in found.reason, found
    assert "is divided by" not in found.reason, found
    assert verify(counting(False), single, {"x": x}, devices=devices, variables=[hits]).passed


def test_no_rows_are_given_to_other_shards_where_each_device_was_seen_to_read_its_own(devices: Devices) -> None:
    calls = []

    def smoothed(x: Any, labels: Any, share: float) -> Any:
        return -tf.reduce_sum((tf.one_hot(labels, 4) * 0.9 + share) * tf.nn.log_softmax(x), 1)

    def reference(x: Any, labels: Any) -> Any:
        calls.append(1)
        return smoothed(x, labels, 0.025)

    def program(x: Any, labels: Any) -> Any:
        parts = []
        for device, rows, own in zip(devices, tf.split(x, 4), tf.split(labels, 4), strict=True):
            with tf.device(device.name):
                parts.append(smoothed(rows, own, 0.03))
        return tf.concat(parts, 0)

    inputs = {"x": X, "labels": np.array([0, 1, 1, 0, 2, 3, 1, 0], np.int32)}
    found = verify(program, reference, inputs, devices=devices, modes=("eager",))
    assert "it reads the constant 0.03 where the reference reads 0.025" in found.reason, found
    assert "rows of an input that belong to another shard" in " ".join(found.findings[0].follows)
    assert len(calls) <= 35, len(calls)
    calls.clear()
    clean = verify(lambda x, labels: reference(x, labels), reference, inputs, devices=devices[:1], modes=("eager",))
    assert clean.passed, clean
    assert len(calls) <= 8, len(calls)


def test_a_factor_is_not_said_to_be_another_number_of_rows_unless_the_program_computes_with_it(
    devices: Devices,
) -> None:
    def program(x: Any, factor: float) -> Any:
        return tf.concat(in_towers(devices, x, lambda _, part: tf.reduce_sum(part, 1) * factor), 0)

    reference = lambda x: tf.reduce_sum(x, 1) * 3.0  # noqa: E731
    found = verify(lambda x: program(x, 2.0), reference, {"x": X}, devices=devices, modes=("eager",))
    assert "0.6667 times the single-device result" in found.reason, found
    assert "12 rows" not in found.reason, found
    assert verify(lambda x: program(x, 3.0), reference, {"x": X}, devices=devices, modes=("eager",)).passed
