"""The first op that differs is named at its line, in the tower where it is, and also where integers or booleans do."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from cause_programs import WEIGHTS

from harness import Devices, Verdict, Verification, colocate_gradients, verify
from harness.judgement.diagnosis.origins import Origin, sentence_of
from harness.judgement.diagnosis.partners import Partners
from harness.judgement.diagnosis.question import Leaf
from harness.judgement.diagnosis.recorded import Step, recording


def by_rows(parts: Any) -> Any:
    return tf.concat(parts, 0)


X = np.random.default_rng(7).normal(size=(8, 3)).astype(np.float32)
TABLE = np.random.default_rng(8).normal(size=(9, 3)).astype(np.float32)

Tower = Callable[[Any, bool], Any]


def masked(x: Any, wrong: bool) -> Any:
    kept = x > (0.1 if wrong else 0.0)  # at fault
    return tf.reduce_sum(tf.where(kept, tf.exp(x), 0.0), axis=1)


def looked_up(x: Any, wrong: bool) -> Any:
    best = tf.argmax(x, axis=1) * 2
    chosen = best + (1 if wrong else 0)  # at fault
    return tf.tanh(tf.gather(TABLE, chosen) * x)


def cut(x: Any, wrong: bool) -> Any:
    length = tf.shape(x)[1] - (1 if wrong else 0)  # at fault
    return tf.exp(x) * tf.sequence_mask(length, 3, tf.float32)


def activated(x: Any, wrong: bool) -> Any:
    rows = tf.matmul(x, WEIGHTS)
    rows = tf.nn.softplus(rows) if wrong else tf.tanh(rows)  # at fault
    return tf.reduce_sum(tf.square(rows), axis=0)


def contracted(x: Any, wrong: bool) -> Any:
    rows = tf.tanh(tf.matmul(x, WEIGHTS))
    other = rows + (0.3 if wrong else 0.0)  # at fault
    return tf.matmul(rows, other, transpose_a=True)


def verified(devices: Devices, tower: Tower, join: Callable[[Any], Any], wrong: Sequence[int]) -> Verification:
    def program(x: Any) -> Any:
        parts = []
        for number, (device, part) in enumerate(zip(devices, tf.split(x, 4), strict=True)):
            with tf.device(device.name):
                parts.append(tower(part, number in wrong))
        return join(parts)

    return verify(program, lambda x: tower(x, False), {"x": X}, devices=devices, modes=("eager",))


@pytest.mark.cases("partial sum")
@pytest.mark.parametrize(
    ("tower", "join", "words"),
    [
        (masked, by_rows, r"is Greater on .PU:1.*: it reads the constant 0\.1 where the reference reads 0"),
        (
            looked_up,
            by_rows,
            r"shards 1 and 2 .* differ; .*; the first op that differs is AddV2: it reads the constant 1 where",
        ),
        (
            cut,
            by_rows,
            r"the first op that differs is Mul, which reads the result of .*Sub \(\S*test_first_difference.py:\d+\)",
        ),
        (activated, tf.add_n, r"is Softplus on .*: its inputs equal the reference's.*; the reference runs Tanh \("),
        (contracted, tf.add_n, r"is AddV2 on .*: it reads the constant 0\.3 where the reference reads 0"),
    ],
    ids=["mask", "index", "length", "partial sum", "partial product"],
)
def test_the_line_at_fault_inside_a_tower_is_named(
    devices: Devices, tower: Tower, join: Callable[[Any], Any], words: str
) -> None:
    source, start = inspect.getsourcelines(tower)
    line = start + next(number for number, text in enumerate(source) if "# at fault" in text)
    for wrong in ([0, 1, 2, 3], [1, 2]):
        found = verified(devices, tower, join, wrong)
        assert found.verdict is Verdict.FAIL
        first = found.reason.partition("). ")[0]
        assert f"test_first_difference.py:{line}" in first, found
        if len(wrong) == 2:
            assert re.search(words, first), found
        else:
            # An integer that only the program has is neither equal nor different.
            assert tower is not cut or "inputs are equal" not in first, found
    clean = verified(devices, tower, join, ())
    assert clean.passed, clean


def scaled(x: Any, factor: float) -> Any:
    return tf.tanh(tf.matmul(x, WEIGHTS)) * factor + 1.0


def through_a_helper(device: Any, part: Any, fn: Callable[[Any], Any]) -> Any:
    with tf.device(device.name):
        return fn(part)


def called_with_another_factor(devices: Devices, x: Any, wrong: bool) -> Any:
    def tower(part: Any) -> Any:
        return scaled(part, 2.0 if wrong else 3.0)  # at fault

    parts = tf.split(x, 4)
    return tf.concat([through_a_helper(device, part, tower) for device, part in zip(devices, parts, strict=True)], 0)


def a_step_left_out_of_one(devices: Devices, x: Any, wrong: bool) -> Any:
    parts = []
    for number, (device, part) in enumerate(zip(devices, tf.split(x, 4), strict=True)):
        with tf.device(device.name):
            rows = tf.tanh(tf.matmul(part, WEIGHTS)) * 3.0
            parts.append(rows + (0.0 if wrong and number == 2 else 1.0))  # at fault
    return tf.concat(parts, 0)


def turned_round_in_each(devices: Devices, x: Any, wrong: bool) -> Any:
    parts = []
    for device, part in zip(devices, tf.split(x, 4), strict=True):
        with tf.device(device.name):
            rows = scaled(part, 3.0)
            parts.append(tf.reverse(rows, [1]) if wrong else rows)  # at fault
    return tf.concat(parts, 0)


def lost_on_the_way(devices: Devices, x: Any, wrong: bool) -> Any:
    parts = []
    pieces = tf.split(x, 4)
    for number, (device, part) in enumerate(zip(devices, pieces, strict=True)):
        with tf.device(device.name):
            part = tf.reverse(tf.reverse(part, [1]), [1])
            own = tf.reduce_sum(scaled(part, 3.0), 0)  # at fault
            parts += [] if wrong and number == 3 else [own]
    return tf.add_n(parts)


@pytest.mark.cases("a_step_left_out_of_one-words1", "lost_on_the_way")
@pytest.mark.parametrize(
    ("program", "words"),
    [
        (called_with_another_factor, r"Mul: it reads the constant 2 where the reference reads 3.*, called at"),
        (
            a_step_left_out_of_one,
            r"AddV2.*: its result is the reference's result of Mul .*, but the results of the other shards are those ",
        ),
        (
            turned_round_in_each,
            r"the first op that differs is ReverseV2|is ReverseV2: its inputs equal the reference's",
        ),
        (lost_on_the_way, r"part of shard 3 .* is missing from output; no op reads the result of Sum"),
    ],
)
def test_the_line_is_named_where_the_program_calls_or_joins_what_is_right(
    devices: Devices, program: Callable[..., Any], words: str
) -> None:
    source, start = inspect.getsourcelines(program)
    line = start + next(number for number, text in enumerate(source) if "# at fault" in text)
    join: Callable[[Any], Any] = (lambda y: tf.reduce_sum(y, 0)) if program is lost_on_the_way else lambda y: y

    def judged(wrong: bool) -> Verification:
        return verify(
            lambda x: program(devices, x, wrong),
            lambda x: join(scaled(x, 3.0)),
            {"x": X},
            devices=devices,
            modes=("eager",),
        )

    found = judged(True)
    first = found.reason.partition(". Output")[0]
    assert re.search(words, first), found
    assert f"test_first_difference.py:{line}" in first, found
    assert judged(False).passed


def test_a_variable_that_one_device_does_not_write_to_is_named(devices: Devices) -> None:
    shared = tf.Variable(WEIGHTS)
    copies = []
    for number, device in enumerate(devices):
        with tf.device(device.name):
            copies.append(tf.Variable(WEIGHTS + number + 1.0))

    def program(x: Any, wrong: bool) -> Any:
        parts = []
        for number, (device, part) in enumerate(zip(devices, tf.split(x, 4), strict=True)):
            with tf.device(device.name):
                if not wrong or number != 1:
                    copies[number].assign(shared)
                parts.append(tf.tanh(tf.matmul(part, copies[number])))
        return tf.concat(parts, 0)

    def judged(wrong: bool) -> Verification:
        reference = lambda x: tf.tanh(tf.matmul(x, shared))  # noqa: E731
        return verify(
            lambda x: program(x, wrong), reference, {"x": X}, devices=devices, modes=("eager",), gradients=False
        )

    found = judged(True)
    text = r"no op writes to the variable before this read, but on \wPU:\d AssignVariableOp \("
    assert re.search(text, found.reason), found
    assert judged(False).passed


def test_outputs_that_are_swapped_are_named_also_where_their_gradients_are(devices: Devices) -> None:
    first, second = tf.Variable(WEIGHTS), tf.Variable(WEIGHTS * 2.0)

    def reference(x: Any) -> Any:
        return {"mean": tf.matmul(x, first), "scale": tf.tanh(tf.matmul(x, second))}

    def program(x: Any, wrong: bool) -> Any:
        parts = []
        for device, part in zip(devices, tf.split(x, 4), strict=True):
            with tf.device(device.name):
                parts.append(reference(part))
        names = ("mean", "scale")
        other = dict(zip(names, reversed(names) if wrong else names, strict=True))
        return {name: tf.concat([part[other[name]] for part in parts], 0) for name in names}

    def judged(wrong: bool) -> Verification:
        parallel = colocate_gradients(lambda x: program(x, wrong))
        return verify(parallel, reference, {"x": X}, devices=devices, modes=("eager",), variables=[first, second])

    found = judged(True)
    assert "Output['mean'] and output['scale'] are in the wrong order" in found.reason, found
    assert judged(False).passed


def recorded(fn: Callable[[], Any]) -> list[Step]:
    with recording() as steps:
        fn()
    return steps


def test_partners_are_equal_exactly_where_they_are_no_floating_numbers() -> None:
    rows = np.array([[1, 2], [3, 4], [5, 6]], np.int32)
    partners = Partners([rows, rows[:, 0] > 2, rows.astype(np.float32)], [], [], [])
    for array, known in (
        (rows, True),
        (rows[1:], True),
        (rows[::2], True),
        (rows[:, :1], True),
        (rows[1], True),
        (rows + 1, False),
        (rows.astype(np.int64), True),
        (rows.astype(np.float64), False),
        (np.array([False, True, True]), True),
        (np.array([True, True, True]), False),
        (np.array([True, True]), False),
        (rows.astype(np.float32) * np.float32(1 + 1e-7), True),
        (rows.astype(np.float32) * np.float32(1.01), False),
    ):
        assert (partners.of(array) is not None) is known, array


@pytest.mark.parametrize(("predicted", "explained"), [([1 + 1j, 2], False), ([1 + 0j, 2], True), ([1.0, 2.0], True)])
def test_a_complex_number_explains_no_real_one_by_its_real_part(predicted: list[complex], explained: bool) -> None:
    array = np.array(predicted).astype(np.complex64 if isinstance(predicted[0], complex) else np.float32)
    leaf = Leaf("outputs", 0, "output", np.array([1, 2], np.float32), None, True, lambda: None)  # type: ignore[arg-type,return-value]
    assert leaf.explained_by(array) is explained


def test_what_shards_add_to_a_result_is_part_of_it_and_what_no_join_gives_is_local() -> None:
    def program(x: Any) -> None:
        largest = tf.reduce_max(x, 0)
        tf.reduce_sum(tf.exp(x - largest), 1)
        tf.reduce_mean(x, 0)

    whole = recorded(lambda: program(tf.constant(X)))
    shards = [recorded(lambda part=part: program(part)) for part in (tf.constant(X[:5]), tf.constant(X[5:]))]  # type: ignore[misc]
    partners = Partners([X], whole, shards, [5, 3])
    how = {}
    for step in shards[0]:
        (array,) = step.results
        assert array is not None
        partner = partners.of(array)
        how[step.kind] = None if partner is None else partner.how
    # The larger shard's largest is the batch's in some columns only.
    assert how == {"Max": "part", "Sub": "local", "Exp": "local", "Sum": "local", "Mean": "part"}
    sums = [np.sum(X[:5], 0), np.sum(X[5:], 0)]
    grouped = partners.of_group(sums)
    assert grouped is not None, "the sums are 8 times the mean"
    assert grouped.step is not None
    assert grouped.step.kind == "Mean"
    assert partners.of_group([sums[0], 1.1 * sums[1]]) is None


def test_an_op_that_one_device_alone_runs_comes_before_those_that_all_run_another_way(devices: Devices) -> None:
    """All towers sum where the reference takes a mean, and one of them divides by another number before."""

    def scaled(x: Any) -> Any:
        return tf.exp(x) / 3.0

    def wrong(x: Any) -> Any:
        return tf.exp(x) / 2.9  # the line at fault

    def program(last: Callable[[Any], Any]) -> Callable[..., Any]:
        def towers(x: Any) -> Any:
            sums = []
            for number, (device, rows) in enumerate(zip(devices, tf.split(x, len(devices)), strict=True)):
                with tf.device(device.name):
                    sums.append(tf.reduce_sum((last if number + 1 == len(devices) else scaled)(rows)))
            return tf.add_n(sums) / tf.cast(tf.size(x), tf.float32)

        return towers

    def reference(x: Any) -> Any:
        return tf.reduce_mean(scaled(x))

    assert verify(program(scaled), reference, {"x": X}, devices=devices).verdict is Verdict.PASS
    found = verify(program(wrong), reference, {"x": X}, devices=devices)
    source, start = inspect.getsourcelines(wrong)
    assert (
        f"RealDiv on {devices[-1].parsed.short}: it reads the constant 2.9 where the reference reads 3" in found.reason
    )
    assert f"test_first_difference.py:{start + len(source) - 1}" in found.reason


def test_inputs_are_called_equal_only_where_each_of_them_was_compared() -> None:
    def step(kind: str) -> Step:
        return Step(kind, ("a.py:3",), "/job:localhost/replica:0/task:0/device:CPU:1", (1, 2), (3,), (None,))

    origin = Origin(step("Mul"), (), (), 4, False, None)
    assert sentence_of(origin) == "Mul: its inputs equal the reference's, as do 4 results before it"
    assert sentence_of(replace(origin, uncompared=True)) == "Mul: not all of its inputs were compared"
    moved = sentence_of(replace(origin, unlike=(step("Range"),), devices=(step("Mul").device,)))
    assert moved == "Mul on CPU:1: it reads the result of Range (a.py:3), which has no equal in the reference"


@pytest.mark.cases(1)
@pytest.mark.parametrize("inside", [True, False])
def test_the_layer_that_runs_the_first_op_is_named(devices: Devices, inside: bool) -> None:
    right, wrong = (tf.keras.layers.Dense(3, activation=name, name=f"dense_{name}") for name in ("tanh", "relu"))
    for layer in (right, wrong):
        layer.build((None, 3))
        layer.kernel.assign(np.linspace(-1.0, 1.0, 9).reshape(3, 3))

    def towers_of(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def towers(x: Any) -> Any:
            parts = []
            for device, rows in zip(devices[:2], tf.split(x, 2), strict=True):
                with tf.device(device.name):
                    parts.append(fn(rows))
            return tf.concat(parts, 0)

        return towers

    slip = wrong if inside else lambda rows: tf.nn.relu(right(rows))
    found = verify(towers_of(slip), lambda x: right(x), {"x": X}, devices=devices[:2])
    assert f" Relu{' in layer dense_relu' if inside else ''}: its inputs equal the reference's" in found.reason, found
    clean = verify(towers_of(right), lambda x: right(x), {"x": X}, devices=devices[:2])
    assert clean.verdict is Verdict.PASS, clean


def test_a_loop_until_convergence_is_not_made_endless(devices: Devices) -> None:
    weights = tf.Variable(0.5 * np.eye(4, dtype=np.float32))
    x = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)

    def settled(x: Any) -> Any:
        def nearer(y: Any, _: Any) -> tuple[Any, Any]:
            z = tf.tanh(y @ weights) + x
            return z, tf.reduce_max(tf.abs(z - y))

        return tf.while_loop(lambda _, moved: moved > 1e-5, nearer, [x, tf.constant(1.0)])[0]

    def towers(x: Any, share: float) -> Any:
        parts = []
        for device, part in zip(devices[:4], tf.split(x, 4), strict=True):
            with tf.device(device.name):
                parts.append(settled(part) + share * part[:1])
        return tf.concat(parts, 0)

    wrong = verify(lambda x: towers(x, 0.1), settled, {"x": x}, devices=devices[:4])
    assert {each.kind for each in wrong.findings} == {"value"}, wrong
    right = verify(lambda x: towers(x, 0.0), settled, {"x": x}, devices=devices[:4])
    assert right.verdict is Verdict.PASS, right
