"""The first op is named where variables are read too early or written too often, or shards cannot be run alone."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verification, verify

X = np.random.default_rng(3).normal(size=(8, 3)).astype(np.float32)
W = np.random.default_rng(4).normal(size=(3, 2)).astype(np.float32)


def line_in(fn: Callable[..., Any]) -> str:
    source, start = inspect.getsourcelines(fn)
    at = next(number for number, text in enumerate(source) if "# at fault" in text)
    return f"tests/judgement/test_first_op_of_updates.py:{start + at}"


def towers(devices: Devices, x: Any, fn: Callable[[Any], Any], sizes: Sequence[int] = (2, 2, 2, 2)) -> list[Any]:
    parts = []
    for device, part in zip(devices[:4], tf.split(x, sizes), strict=True):
        with tf.device(device.name):
            parts.append(fn(part))
    return parts


class Scaled:
    """Rows times a total that counts the batches' means."""

    def __init__(self) -> None:
        self.total = tf.Variable([1.7, 2.0, 3.0], name="total")

    def add(self, x: Any) -> None:
        self.total.assign_add(tf.reduce_mean(x, 0))

    def reference(self, x: Any) -> Any:
        self.add(x)
        return tf.exp(x) * self.total[0]

    def too_early(self, devices: Devices, x: Any, wrong: bool) -> Any:
        before = self.total.read_value()[0] if wrong else 0.0  # at fault
        self.add(x)
        factor = before if wrong else self.total[0]
        return tf.concat(towers(devices, x, lambda part: tf.exp(part) * factor), 0)

    def too_often(self, devices: Devices, x: Any, wrong: bool) -> Any:
        factor = self.total[0] + tf.reduce_mean(x, 0)[0]
        self.add(x)
        if wrong:
            self.add(x)  # at fault
        return tf.concat(towers(devices, x, lambda part: tf.exp(part) * factor), 0)


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    ("program", "words"),
    [
        (Scaled.too_early, r"is ReadVariableOp: it reads the variable before AssignAddVariableOp .* writes to it"),
        (Scaled.too_often, r"is AssignAddVariableOp: it runs 2 times, but once in the reference"),
    ],
)
def test_a_read_before_the_write_and_a_write_too_many_are_named(
    devices: Devices, program: Callable[..., Any], words: str
) -> None:
    def judged(wrong: bool) -> Verification:
        scaled = Scaled()
        return verify(
            lambda x: program(scaled, devices, x, wrong),
            scaled.reference,
            {"x": X},
            devices=devices[:4],
            variables=[scaled.total],
            gradients=False,
        )

    found = judged(True)
    first = found.reason.partition("). ")[0]
    assert re.search(words, first), found
    assert line_in(program) in first, found
    assert judged(False).passed


def test_the_first_op_is_named_where_the_reference_refuses_the_rows_of_a_shard(devices: Devices) -> None:
    """Two steps on half of the batch each: a shard has fewer rows than there are steps."""

    def gradient(w: Any, x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.tanh(tf.matmul(x, w)))
        return tape.gradient(loss, w)

    def of_towers(w: Any, x: Any) -> Any:
        rows = x.shape[0] // 4
        return tf.add_n(towers(devices, x, lambda part: gradient(w, part), (rows,) * 4)) / 4.0

    def two_steps(w: Any, x: Any, slope: Callable[[Any, Any], Any], stale: bool) -> Any:
        first, second = tf.split(x, 2)
        one = slope(w, first)
        two = slope(w, second) if stale else None  # at fault
        w.assign_sub(one)
        w.assign_sub(slope(w, second) if two is None else two)
        return w.read_value()

    def judged(stale: bool) -> Verification:
        w = tf.Variable(W, name="w")
        return verify(
            lambda x: two_steps(w, x, of_towers, stale),
            lambda x: two_steps(w, x, gradient, False),
            {"x": X},
            devices=devices[:4],
            variables=[w],
        )

    found = judged(True)
    assert line_in(two_steps) in found.reason.partition("). ")[0], found
    assert re.search(r"first op .* is MatMul", found.reason), found
    assert judged(False).passed


def test_the_op_that_gets_no_rows_is_named_where_all_rows_are_dropped(devices: Devices) -> None:
    def program(x: Any, wrong: bool) -> Any:
        size = len(x) // 4 if wrong else 1
        parts = [x[number * size : (number + 1) * size] for number in range(4)]  # at fault
        results = []
        for device, part in zip(devices[:4], parts, strict=True):
            with tf.device(device.name):
                results.append(tf.tanh(tf.matmul(part, W)))
        return tf.concat(results, 0)

    def judged(wrong: bool) -> Verification:
        reference = lambda x: tf.tanh(tf.matmul(x, W))  # noqa: E731
        return verify(lambda x: program(x, wrong), reference, {"x": X[:3]}, devices=devices[:4])

    found = judged(True)
    assert re.match(
        rf"All 3 rows were dropped .*which reads the result of StridedSlice \({line_in(program)}\)", found.reason
    ), found
    assert not [each for each in judged(False).findings if each.kind == "shape"]


def test_the_program_is_named_where_it_reads_the_gradients_of_one_tower_alone(devices: Devices) -> None:
    w = tf.Variable(W)

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
        return loss, tape.gradient(loss, w)

    def program(x: Any) -> Any:  # at fault
        steps = towers(devices, x, step)
        return tf.add_n([loss for loss, _ in steps]) / 4.0, steps[0][1]

    def right(x: Any) -> Any:
        losses, slopes = zip(*towers(devices, x, step), strict=True)
        return tf.add_n(losses) / 4.0, tf.add_n(slopes) / 4.0

    found = verify(program, step, {"x": X}, devices=devices[:4])
    assert f"are lost; in the program at {line_in(program)}, no op reads the result of MatMul" in found.reason, found
    assert "no op reads" not in verify(right, step, {"x": X}, devices=devices[:4]).reason
