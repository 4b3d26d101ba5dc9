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

from harness import Devices, Verdict, Verification, verify
from harness.judgement.diagnosis.divergence import Origin, sentence_of
from harness.judgement.diagnosis.partners import Partners
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


@pytest.mark.parametrize(
    ("tower", "join", "words"),
    [
        (masked, by_rows, r"is Greater on .PU:1.*: its inputs are equal"),
        (looked_up, by_rows, r"shards 1 and 2 .* differ; .*; the first op that differs is AddV2 \("),
        (cut, by_rows, r"the first op that differs is Mul, which reads what .*Sub \(test_first_difference.py:\d+\)"),
        (activated, tf.add_n, r"is Softplus on .*: its inputs are equal.*; the reference runs Tanh \("),
        (contracted, tf.add_n, r"is AddV2 on .*: its inputs are equal"),
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
        (rows.astype(np.int64), False),
        (np.array([False, True, True]), True),
        (np.array([True, True, True]), False),
        (np.array([True, True]), False),
        (rows.astype(np.float32) * np.float32(1 + 1e-7), True),
        (rows.astype(np.float32) * np.float32(1.01), False),
    ):
        assert (partners.of(array) is not None) is known, array


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


def test_inputs_are_called_equal_only_where_each_of_them_was_compared() -> None:
    def step(kind: str) -> Step:
        return Step(kind, ("a.py:3",), "/job:localhost/replica:0/task:0/device:CPU:1", (1, 2), (3,), (None,))

    origin = Origin(step("Mul"), (), (), 4, False, None)
    assert sentence_of(origin) == "Mul: its inputs are equal, as are 4 results before it"
    assert sentence_of(replace(origin, uncompared=True)) == "Mul: not all of its inputs were compared"
    moved = sentence_of(replace(origin, unlike=(step("Range"),), devices=(step("Mul").device,)))
    assert moved == "Mul on CPU:1: the reference has no equal of what it reads from Range (a.py:3) either"
