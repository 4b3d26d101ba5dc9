"""Programs that agree on the numbers that they were given, and differ on others, do not pass; right ones do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
from harness.records import Verdict

pytestmark = pytest.mark.devices(min=2)
Program = Callable[..., Any]


def _numbers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@dataclass
class Hidden:
    """A wrong program and its right twin, the reference, inputs that hide the difference, and words of its finding."""

    wrong: Program
    right: Program
    reference: Program
    inputs: dict[str, Any]
    said: str
    options: dict[str, Any] = field(default_factory=dict)


def _towers(names: list[str], fn: Program, sizes: list[int], order: tuple[int, int] = (0, 1)) -> Program:
    def program(x: Any) -> Any:
        parts = tf.split(x, sizes)
        found = []
        for at, name in enumerate(names):
            with tf.device(name):
                found.append(fn(parts[at], at))
        return tf.concat([found[at] for at in order], 0)

    return program


def _equal_rows(names: list[str]) -> Hidden:
    w = tf.Variable(_numbers(0, 5, 3))

    def model(x: Any, at: int = 0) -> Any:
        return tf.tanh(tf.matmul(x, w))

    swapped, right = _towers(names, model, [4, 4], (1, 0)), _towers(names, model, [4, 4])
    return Hidden(swapped, right, model, {"x": np.ones((8, 5), np.float32)}, "different order")


def _weights_of_zeros(names: list[str]) -> Hidden:
    w = tf.Variable(tf.zeros((5, 3)))

    def model(x: Any, at: int = 0) -> Any:
        return tf.matmul(x, w)

    wrong = _towers(names, lambda x, at: model(x) * (1.0 + at), [4, 4])
    return Hidden(wrong, _towers(names, model, [4, 4]), model, {"x": _numbers(1, 8, 5)}, "2 times")


def _loss_of_zero(names: list[str]) -> Hidden:
    w = tf.Variable(tf.zeros((5, 3)))

    def loss(x: Any) -> Any:
        return tf.reduce_mean(tf.square(tf.matmul(x, w)))

    def joined(weights: tuple[float, float]) -> Program:
        def program(x: Any) -> Any:
            total = []
            for name, part, weight in zip(names, tf.split(x, [3, 5]), weights, strict=True):
                with tf.device(name):
                    total.append(loss(part) * weight)
            return tf.add_n(total)

        return program

    return Hidden(joined((0.5, 0.5)), joined((3 / 8, 5 / 8)), loss, {"x": _numbers(2, 8, 5)}, "mean of means")


def _adapter_that_starts_as_zeros(names: list[str]) -> Hidden:
    """A low-rank adapter: what its first factor makes is hidden by the second one."""
    w, a, b = tf.Variable(_numbers(3, 5, 5)), tf.Variable(_numbers(4, 5, 2)), tf.Variable(tf.zeros((2, 5)))

    def model(x: Any, at: int = 0) -> Any:
        return tf.matmul(x, w) + tf.cumsum(tf.matmul(tf.matmul(x, a), b), axis=1)

    def other(x: Any, at: int) -> Any:
        return tf.matmul(x, w) + tf.cumsum(tf.matmul(tf.matmul(x - tf.reduce_mean(x, 0), a), b), axis=1)

    return Hidden(
        _towers(names, other, [4, 4]), _towers(names, model, [4, 4]), model, {"x": _numbers(5, 8, 5)}, "Output"
    )


HIDDEN = (_equal_rows, _weights_of_zeros, _loss_of_zero, _adapter_that_starts_as_zeros)


@pytest.mark.parametrize(("make", "mode"), [*((make, "graph") for make in HIDDEN), (_loss_of_zero, "eager")])
def test_what_the_numbers_hide_is_found_and_the_right_twin_passes(
    make: Callable[[list[str]], Hidden], mode: str, devices: harness.Devices
) -> None:
    case = make(list(devices.names[:2]))
    options: dict[str, Any] = {"devices": devices[:2], "modes": [mode], **case.options}
    found = harness.verify(case.wrong, case.reference, case.inputs, **options)
    assert found.verdict is Verdict.FAIL, found
    assert found.reason.startswith("With these numbers the results agree; with others they do not: "), found
    assert case.said in found.reason, found
    assert {finding.kind for finding in found.findings} == {"value"}, found
    clean = harness.verify(case.right, case.reference, case.inputs, **options)
    assert clean.findings == (), clean
    assert clean.verdict is Verdict.PASS, clean
    assert "All rows of the inputs" not in clean.reason, clean


def test_copies_and_slices_of_weights_stay_what_they_are(devices: harness.Devices) -> None:
    """Columns of one weight in a variable for each device, which no proof knows to be equal to those of the weight."""
    start = _numbers(6, 5, 4)
    w, gate = tf.Variable(start), tf.Variable(0.0)
    parts = []
    for at, name in enumerate(devices.names[:2]):
        with tf.device(name):
            parts.append(tf.Variable(start[:, 2 * at : 2 * at + 2]))

    def program(x: Any) -> Any:
        columns = []
        for name, part in zip(devices.names[:2], parts, strict=True):
            with tf.device(name):
                columns.append(tf.matmul(x, part))
        return tf.concat(columns, 1) * gate

    clean = harness.verify(
        program, lambda x: tf.matmul(x, w) * gate, {"x": np.ones((8, 5), np.float32)}, devices=devices[:2]
    )
    assert clean.findings == (), clean
    assert clean.verdict is Verdict.PASS, clean
    assert clean.proof is not None
    assert not clean.proof.proved, "else there is no second look"
    assert (w.numpy() == start).all(), "variables have their values again"
    assert gate.numpy() == 0.0


def test_inputs_that_are_parts_of_each_other_stay_so(devices: harness.Devices) -> None:
    w = tf.Variable(_numbers(7, 5, 4))
    x = np.ones((8, 5), np.float32)

    def program(x: Any, parts: Any) -> Any:
        found = []
        for name, part in zip(devices.names[:2], parts, strict=True):
            with tf.device(name):
                found.append(tf.tanh(tf.matmul(part, w)))
        return tf.concat(found, 0)

    inputs = {"x": x, "parts": [x[:4], x[4:]]}
    clean = harness.verify(program, lambda x, parts: tf.tanh(tf.matmul(x, w)), inputs, devices=devices[:2])
    assert clean.findings == (), clean
    assert clean.verdict is Verdict.PASS, clean
    assert "All rows of the inputs are equal" in clean.reason


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_an_accumulator_that_a_step_empties_has_no_other_numbers_and_one_that_it_only_reads_has(
    devices: harness.Devices, mode: str
) -> None:
    weights, held = tf.Variable(_numbers(0, 4, 3)), tf.Variable(tf.zeros([4, 3]))

    def slope(x: Any) -> Any:
        return tf.matmul(x, tf.matmul(x, weights), transpose_a=True)

    def accumulated(x: Any) -> None:
        for device, part in zip(devices[:2], tf.split(x, 2), strict=True):
            with tf.device(device.name):
                held.assign_add(slope(part))
        weights.assign_sub(0.01 * held)
        held.assign(tf.zeros([4, 3]))

    def read(x: Any) -> None:
        total = held.read_value()
        for device, part in zip(devices[:2], tf.split(x, 2), strict=True):
            with tf.device(device.name):
                total += slope(part)
        weights.assign_sub(0.01 * total)

    def once(x: Any) -> None:
        weights.assign_sub(0.01 * slope(x))

    options: dict[str, Any] = {"devices": devices[:2], "variables": [weights, held], "modes": (mode,)}
    right, wrong = (harness.verify(fn, once, {"x": _numbers(1, 6, 4)}, **options) for fn in (accumulated, read))
    assert right.verdict is Verdict.PASS, right
    assert wrong.verdict is Verdict.FAIL, wrong
    assert "with others they do not" in wrong.reason
