"""Ops that are right in parts that the reference does not have are not accused; what another device does, is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from harness import Devices, Verdict, Verification, colocate_gradients, verify
from harness.faults.samples import sample
from harness.judgement.diagnosis.odd import unevenly_spaced

pytestmark = pytest.mark.devices(min=4)
#: The program, the reference, the inputs and the variables.
Made = tuple[Callable[..., Any], Callable[..., Any], dict[str, Any], list[Any]]


def pencils(devices: Devices, wrong: bool) -> Made:
    """A transform of the rows, then of the columns: the reference has neither."""

    def parallel(x: Any) -> Any:
        rows, columns = [], []
        for device, part in zip(devices, tf.split(x, 4), strict=True):
            with tf.device(device.name):
                rows.append(tf.split(tf.signal.fft(tf.cast(part, tf.complex64)), 4, axis=1))
        for number, device in enumerate(devices):
            with tf.device(device.name):
                blocks = [rows[other][number] for other in range(4)]
                blocks = [blocks[1], blocks[0], *blocks[2:]] if wrong and number == 2 else blocks
                turned = tf.signal.fft(tf.transpose(tf.concat(blocks, 0)))
                columns.append(tf.abs(tf.transpose(turned)))
        return tf.concat(columns, 1)

    return parallel, lambda x: tf.abs(tf.signal.fft2d(tf.cast(x, tf.complex64))), {"x": sample(8, 8)}, []


def mesh(devices: Devices, wrong: bool) -> Made:
    """Rows by hidden units: the partial products of one half of the rows have no equal in the reference."""
    first, second = tf.Variable(sample(5, 8, seed=1)), tf.Variable(sample(8, 3, seed=2))

    def parallel(x: Any) -> Any:
        rows = []
        for row, own in enumerate(tf.split(x, 2)):
            parts = []
            for column, (one, two) in enumerate(zip(tf.split(first, 2, 1), tf.split(second, 2), strict=True)):
                with tf.device(devices[2 * row + column].name):
                    hidden = own @ one
                    parts.append((hidden if wrong and row == column == 1 else tf.nn.relu(hidden)) @ two)
            rows.append(tf.add_n(parts))
        return tf.concat(rows, 0)

    return colocate_gradients(parallel), lambda x: tf.nn.relu(x @ first) @ second, {"x": sample(6, 5)}, [first, second]


def parts_of_a_data_set(devices: Devices, wrong: bool) -> Made:
    weights = tf.Variable(sample(3, 1, seed=1))

    def total(data: Any) -> Any:
        found = tf.zeros([1])
        for part in data:
            found += tf.reduce_sum(tf.tanh(part @ weights), 0)
        return found

    def parallel(data: Any) -> Any:
        parts = []
        for number, device in enumerate(devices):
            own = data.shard(4, 0 if wrong and number == 1 else number)
            with tf.device(device.name):
                parts.append(total(own))
        return tf.add_n(parts)

    return parallel, total, {"data": tf.data.Dataset.from_tensor_slices(sample(16, 3)).batch(2)}, [weights]


def best_of_each(devices: Devices, wrong: bool) -> Made:
    def parallel(x: Any) -> Any:
        values, places = [], []
        for number, (device, part) in enumerate(zip(devices, tf.split(x, 4), strict=True)):
            with tf.device(device.name):
                best, at = tf.math.top_k(part, 3)
                values.append(best)
                places.append(at + (10 if wrong and number == 2 else 6 * number))
        return tf.gather(tf.concat(places, 0), tf.math.top_k(tf.concat(values, 0), 3)[1])

    x = sample(24)
    x[13], x[2], x[20] = 9.0, 8.0, 7.0
    return parallel, lambda x: tf.math.top_k(x, 3)[1], {"x": x}, []


def in_columns(devices: Devices, after: Callable[[Any], Any], joined: Callable[[Any], Any], weights: Any) -> Any:
    def parallel(x: Any) -> Any:
        parts = []
        for device, own, part in zip(devices, tf.split(x, 4, axis=1), tf.split(weights, 4), strict=True):
            with tf.device(device.name):
                parts.append(after(own @ part))
        return joined(tf.add_n(parts))

    return colocate_gradients(parallel)


def bias_on_each(devices: Devices, wrong: bool) -> Made:
    weights, bias = tf.Variable(sample(8, 3, seed=1)), tf.Variable(sample(3, seed=2))
    parallel = in_columns(
        devices,
        lambda part: part + bias if wrong else part,
        lambda total: tf.nn.relu(total if wrong else total + bias),
        weights,
    )
    return parallel, lambda x: tf.nn.relu(x @ weights + bias), {"x": sample(6, 8)}, [weights, bias]


def shift_on_each(devices: Devices, wrong: bool) -> Made:
    """The same of an input, which is no variable."""
    weights = tf.Variable(sample(8, 3, seed=1))

    def parallel(x: Any, shift: Any) -> Any:
        program = in_columns(
            devices,
            lambda part: part + shift if wrong else part,
            lambda total: tf.nn.relu(total if wrong else total + shift),
            weights,
        )
        return program(x)

    return (
        parallel,
        lambda x, shift: tf.nn.relu(x @ weights + shift),
        {"x": sample(6, 8), "shift": sample(3, seed=2)},
        [],
    )


def curve_on_each(devices: Devices, wrong: bool) -> Made:
    """An op that is not linear may not be applied to parts of a sum."""
    weights = tf.Variable(sample(8, 3, seed=1))
    parallel = in_columns(
        devices,
        lambda part: tf.sinh(part) if wrong else part,
        lambda total: total if wrong else tf.sinh(total),
        weights,
    )
    return parallel, lambda x: tf.sinh(x @ weights), {"x": 0.3 * sample(6, 8)}, []


def momentum(devices: Devices, wrong: bool) -> Made:
    """By chance, 0.8 times the momentum is 8 times what another op computes."""
    weights, speed = tf.Variable(sample(4, 4, seed=1)), tf.Variable(tf.zeros([4, 4]))

    def update(slope: Any, kept: float) -> None:
        speed.assign(kept * speed + slope)
        weights.assign_sub(0.1 * speed)

    def reference(x: Any) -> Any:
        for part in tf.split(x, 3):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((part @ weights) ** 2)
            update(tape.gradient(loss, weights), 0.9)
        return loss

    def parallel(x: Any) -> Any:
        for number, part in enumerate(tf.split(x, 3)):
            slopes, losses = [], []
            for device, own in zip(devices, tf.split(part, 4), strict=True):
                with tf.device(device.name):
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_sum((own @ weights) ** 2) / (part.shape[0] * 4)
                    slopes.append(tape.gradient(loss, weights))
                    losses.append(loss)
            update(tf.add_n(slopes), 0.8 if wrong and number == 2 else 0.9)
            loss = tf.add_n(losses)
        return loss

    return parallel, reference, {"x": sample(24, 4)}, [weights, speed]


def weighted(sizes: list[int], kept: float) -> Callable[[Devices, bool], Made]:
    """Means of shards, the last of which is weighted as if it had as many rows as the others."""

    def make(devices: Devices, wrong: bool) -> Made:
        weights, speed = tf.Variable(sample(5, 1, seed=1)), tf.Variable(sample(5, 1, seed=9))

        def loss_of(x: Any, y: Any) -> Any:
            return tf.reduce_mean((x @ weights - y) ** 2)

        def update(slope: Any) -> None:
            if kept:
                speed.assign(kept * speed + slope)
            weights.assign_sub(0.05 * (speed if kept else slope))

        def reference(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = loss_of(x, y)
            update(tape.gradient(loss, weights))
            return loss

        def parallel(x: Any, y: Any) -> Any:
            slopes, losses = [], []
            for device, *own in zip(devices, tf.split(x, sizes), tf.split(y, sizes), strict=True):
                with tf.device(device.name):
                    share = (4 if wrong else own[0].shape[0]) / sum(sizes)
                    with tf.GradientTape() as tape:
                        loss = loss_of(*own) * share
                    slopes.append(tape.gradient(loss, weights))
                    losses.append(loss)
            update(tf.add_n(slopes))
            return tf.add_n(losses)

        count = sum(sizes)
        return parallel, reference, {"x": sample(count, 5), "y": sample(count, 1, seed=5)}, [weights, speed]

    return make


AGAIN = "run again on the reference's inputs"
WHOLE = "where the reference reads that of the whole batch"
CASES = {
    "pencils": (pencils, r"is ConcatV2 on .PU:2: it reads the result of Split .* on .PU:1, but on .* .PU:0 ", AGAIN),
    "mesh": (mesh, r"is MatMul on .PU:3: it reads the result of MatMul .*, but on .PU:0 .* that of Relu ", AGAIN),
    "data set": (
        parts_of_a_data_set,
        r"reads the parts 0 of 4, 0 of 4, 2 of 4 and 3 of 4 of a dataset; to read each of the 4 parts once ",
        AGAIN,
    ),
    "best": (
        best_of_each,
        r"is AddV2 on .PU:2: its 4 runs read the constants 0, 6, 10 and 18; .*run 3 would read 12 instead of 10 ",
        WHOLE,
    ),
    "bias": (bias_on_each, r"^An addend .* is counted 4 times, .* AddV2: it adds the same .* 4 parts of MatMul", WHOLE),
    "shift": (shift_on_each, r"is AddV2: it adds the same numbers to each of the 4 parts of MatMul", WHOLE),
    "curve": (curve_on_each, rf"is Sinh.*: it reads MatMul .* of one shard, {WHOLE}", "the same numbers"),
    "momentum": (momentum, r"is Mul.*: it reads the constant 0\.8 where the reference reads 0\.9", "times"),
    "weight": (weighted([4, 4, 4, 2], 0.0), r"^Rows 12 and 13, .* count 2 times as much in output", "radient"),
    "third": (weighted([4, 4, 4, 3], 0.0), r"^Rows 12 to 14, .* count 1\.333 times as much in output", "radient"),
    "weight and momentum": (
        weighted([4, 4, 4, 2], 0.9),
        r"is Mul on .PU:3: it weights the mean of this shard by 0\.2857, but 0\.1429 of the rows are in the shard",
        "radient",
    ),
}


#: A graph has no data sets in the scope of a GPU.
NO_GPU_KERNEL = pytest.mark.devices(min=4, kind="logical-cpu")


@pytest.mark.parametrize(
    ("make", "said", "unsaid"),
    [pytest.param(*case, id=name, marks=NO_GPU_KERNEL if name == "data set" else ()) for name, case in CASES.items()],
)
def test_what_is_at_fault_is_named_and_no_right_part(
    devices: Devices, make: Callable[[Devices, bool], Made], said: str, unsaid: str
) -> None:
    def verified(wrong: bool) -> Verification:
        parallel, reference, inputs, variables = make(devices[:4], wrong)
        gradients = None if make in (mesh, bias_on_each) else False
        return verify(parallel, reference, inputs, devices=devices[:4], variables=variables, gradients=gradients)

    wrong, right = verified(True), verified(False)
    assert wrong.verdict is Verdict.FAIL
    first = wrong.reason.partition(". ")[0]
    assert re.search(said, first), wrong
    evidence = [line for each in wrong.findings for line in each.follows if AGAIN in line]
    assert unsaid not in " ".join([first, *evidence]), wrong
    assert right.verdict is Verdict.PASS, right.reason


@pytest.mark.parametrize(
    ("numbers", "odd"),
    [
        ([0, 6, 10, 18], (2, 12)),
        ([0, 0, 2, 3], (1, 1)),
        ([0, 4, 8, 13], (3, 12)),
        ([0, 4, 8, 12], None),
        ([3, 0, 1, 2], None),
        ([1, 2, 3, 0], None),
        ([0, 0, 1, 2], None),
        ([1, 2, 3, 3], None),
        ([2, 2, 2, 3], None),
        ([1, 2, 4, 8], None),
    ],
)
def test_neighbours_in_a_ring_and_at_the_end_of_a_row_are_not_out_of_line(
    numbers: list[int], odd: tuple[int, int] | None
) -> None:
    assert unevenly_spaced(numbers) == odd
