"""Causes that are confirmed by an edit of a call: of an optimizer, a dataset, a ``tf.function`` or an op.

The right code beside the slip is not accused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from harness import Devices, Verdict, verify
from harness.faults.samples import sample

Fn = Callable[..., Any]
#: The program, faulty or right, the reference and the inputs.
Planted = tuple[Fn, Fn, dict[str, Any]]


def on_each(devices: Devices, fn: Fn, *parts: Any) -> list[Any]:
    """What ``fn`` gives for each device's parts, in its scope."""
    made = []
    for device, own in zip(devices, zip(*parts, strict=True), strict=True):
        with tf.device(device.name):
            made.append(fn(*own))
    return made


def _decayed(devices: Devices, wrong: bool, slip: Fn, decay: float | None) -> Planted:
    """One step of AdamW; ``slip`` makes the gradient, and ``decay`` is what the faulty program's optimizer has."""
    weights = tf.Variable(sample(6, 2))
    own, other = (
        tf.keras.optimizers.AdamW(0.05, weight_decay=each) for each in (0.2, decay if wrong and decay else 0.2)
    )
    if wrong and decay is None:
        other = tf.keras.optimizers.Adam(0.05)
    for optimizer in (own, other):
        optimizer.build([weights])

    def gradient(x: Any, y: Any) -> Any:
        return tf.matmul(x, tf.matmul(x, weights) - y, transpose_a=True) / float(len(x))

    def program(x: Any, y: Any) -> Any:
        mean = tf.add_n(on_each(devices, gradient, tf.split(x, 4), tf.split(y, 4))) / 4.0
        other.apply([slip(mean, weights) if wrong else mean], [weights])
        return tf.reduce_mean(weights)

    def reference(x: Any, y: Any) -> Any:
        own.apply([gradient(x, y)], [weights])
        return tf.reduce_mean(weights)

    return program, reference, {"x": sample(8, 6), "y": sample(8, 2, seed=1)}


def decay_as_a_penalty(devices: Devices, wrong: bool) -> Planted:
    """The decay is added to the gradient of an optimizer that has none."""
    return _decayed(devices, wrong, lambda mean, weights: mean + 0.2 * weights, None)


def decay_of_each_shard(devices: Devices, wrong: bool) -> Planted:
    """Each shard's decay is taken from the weights."""
    return _decayed(devices, wrong, lambda mean, _: mean, 0.8)


def same_part_of_a_dataset(devices: Devices, wrong: bool) -> Planted:
    """Two devices read the same part of a dataset, and the last part is read by none."""
    rows = sample(12, 3)

    def largest(number: int) -> Any:
        part = tf.data.Dataset.from_tensor_slices(rows).shard(4, min(number, 2) if wrong else number)
        return part.reduce(tf.zeros(3), lambda total, row: total + row)

    def program(x: Any) -> Any:
        read = [largest(number) for number in range(4)]
        return tf.add_n(on_each(devices, lambda part: part * 0.5, read)) * x

    def reference(x: Any) -> Any:
        whole = tf.data.Dataset.from_tensor_slices(rows)
        return whole.reduce(tf.zeros(3), lambda total, row: total + row) * 0.5 * x

    return program, reference, {"x": sample(3)}


def rate_of_the_first_trace(devices: Devices, wrong: bool) -> Planted:
    """A number of Python's that has changed since a ``tf.function`` was traced."""
    rate = {"now": 0.5}

    tower = tf.function(lambda part: tf.square(part) - rate["now"] * part)
    if wrong:
        tower(tf.zeros((2, 3)))
    rate["now"] = 2.0

    def reference(x: Any) -> Any:
        return tf.square(x) - rate["now"] * x

    return lambda x: tf.concat(on_each(devices, tower, tf.split(x, 4)), 0), reference, {"x": sample(8, 3)}


def too_few_of_each(devices: Devices, wrong: bool) -> Planted:
    """The best two of each shard, of which the best three of all are chosen."""

    def program(x: Any) -> Any:
        best = on_each(devices, lambda part: tf.math.top_k(part, 1 if wrong else 3).values, tf.split(x, 4))
        return tf.math.top_k(tf.concat(best, 0), 3).values

    x = sample(24)
    x[:3] += 9.0
    return program, lambda x: tf.math.top_k(x, 3).values, {"x": x}


def state_that_goes_on(devices: Devices, wrong: bool) -> Planted:
    """The rows of a shard start from what the rows of the shard before have ended with."""
    recurrent, weights = sample(4, 4) * 0.3, sample(5, 4, seed=1)

    def ended(x: Any, state: Any) -> Any:
        for number in range(3):
            state = tf.tanh(tf.matmul(state, recurrent) + tf.matmul(x[:, number], weights))
        return state

    def program(x: Any) -> Any:
        made, state = [], tf.zeros((2, 4))
        for device, part in zip(devices, tf.split(x, 4), strict=True):
            with tf.device(device.name):
                made.append(ended(part, state))
                state = made[-1] if wrong else state
        return tf.concat(made, 0)

    return program, lambda x: ended(x, tf.zeros((8, 4))), {"x": sample(8, 3, 5)}


def other_temperature(devices: Devices, wrong: bool) -> Planted:
    """A constant that is the number of rows: the quotient is no part of a sum over shards."""
    weights = sample(5, 5)

    def tower(part: Any, temperature: float) -> Any:
        return tf.nn.softmax(tf.matmul(part, weights) / temperature)

    def program(x: Any) -> Any:
        return tf.concat(on_each(devices, lambda part: tower(part, 8.0 if wrong else 2.0), tf.split(x, 4)), 0)

    return program, lambda x: tower(x, 2.0), {"x": sample(8, 5)}


#: What the first sentence says.
FAULTS: dict[Callable[[Devices, bool], Planted], str] = {
    decay_as_a_penalty: r"weight decay of 0.2 is added to the gradients \(L2\) instead of being taken from the weights",
    decay_of_each_shard: r"weight decay of 0.2 counts 4 times, once per shard",
    same_part_of_a_dataset: r"reads the parts 0 of 4, 1 of 4, 2 of 4 and 2 of 4 of a dataset; to read each of the 4",
    rate_of_the_first_trace: r"right where the tf.function .*is traced anew: its trace keeps a Python value",
    too_few_of_each: r"TopKV2: it reads the constant 1 where the reference reads 3; to read 3 there makes the results",
    other_temperature: r"^(?!.*of one shard).*; to read (2|the result of the reference's RealDiv .*) there makes the",
    state_that_goes_on: r"MatMul: its input equals the result of Tanh .* but on .PU:0 it equals that of Fill",
}


#: Datasets have no kernel for GPUs.
NO_GPU_KERNEL = pytest.mark.devices(kind="logical-cpu")


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(plant, id=plant.__name__, marks=[NO_GPU_KERNEL] * (plant is same_part_of_a_dataset))
        for plant in FAULTS
    ],
)
def test_a_cause_is_confirmed_by_another_call_and_its_twin_passes(
    devices: Devices, plant: Callable[[Devices, bool], Planted]
) -> None:
    found, twin = (
        verify(program, reference, inputs, devices=devices[:4], modes=("eager",))
        for program, reference, inputs in (plant(devices, True), plant(devices, False))
    )
    assert found.verdict is Verdict.FAIL
    assert re.search(FAULTS[plant], found.reason), found.reason
    assert not {each.kind for each in twin.findings} & {"value", "gradient", "shape"}, twin


@pytest.mark.parametrize("wrong", [True, False])
def test_a_weight_that_loses_the_gradient_of_one_of_two_uses(devices: Devices, wrong: bool) -> None:
    some = devices[:2]
    weights = tf.Variable(sample(5, 4))

    def tower(part: Any) -> Any:
        table = tf.stop_gradient(weights) if wrong else tf.convert_to_tensor(weights)
        return tf.matmul(tf.tanh(tf.matmul(part, weights)), table, transpose_b=True)

    def reference(x: Any) -> Any:
        return tf.matmul(tf.tanh(tf.matmul(x, weights)), weights, transpose_b=True)

    found = verify(
        lambda x: tf.concat(on_each(some, tower, tf.split(x, 2)), 0),
        reference,
        {"x": sample(8, 5)},
        devices=some,
        variables=[weights],
        modes=("eager",),
    )
    assert ("gradient" in {each.kind for each in found.findings}) is wrong, found
    said = r"The gradient stops at StopGradient; MatMul .* passes no gradient on there, the reference's does"
    assert bool(re.search(said, found.reason)) is wrong, found.reason
