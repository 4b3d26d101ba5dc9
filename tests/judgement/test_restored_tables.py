"""Hash tables that a program writes to are restored between runs, wherever it keeps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, verify
from harness.judgement.state import Snapshot
from harness.judgement.uses import uses_noted

pytestmark = pytest.mark.devices(kind="logical-cpu")  # tables are on the host
X = np.random.default_rng(5).normal(size=(8, 3)).astype(np.float32)
INPUTS = {"x": X, "ids": np.arange(8) % 5}


def mutable() -> Any:
    return tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)


def dense() -> Any:
    return tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, 0.0, empty_key=-1, deleted_key=-2)


def _filled(make: Callable[[], Any]) -> Any:
    table = make()
    table.insert(tf.constant([1, 2, 9], tf.int64), [5.0, 6.0, 7.0])
    return table


class Slotted:
    """No closure leads to what stands in the slot."""

    __slots__ = ("add",)

    def __init__(self, add: Any) -> None:
        self.add = add


def counting(table: Any, where: str) -> Callable[[Any, float], Any]:
    """A function that counts ids in the table and returns the counts."""

    def add(ids: Any, step: Any) -> Any:
        table.insert(ids, table.lookup(ids) + step)
        return table.lookup(ids)

    if where == "eager":
        return add
    traced = tf.function(add, input_signature=[tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.float32)])
    traced(tf.constant([3], tf.int64), tf.constant(1.0))
    kept = Slotted(traced)
    return lambda ids, step: kept.add(ids, tf.constant(step))


@pytest.mark.cases("dense-eager")
@pytest.mark.parametrize("where", ["eager", "traced before"])
@pytest.mark.parametrize("make", [mutable, dense])
def test_counts_in_a_table_are_right_or_found_to_be_wrong(
    devices: Devices, make: Callable[[], Any], where: str
) -> None:
    table = _filled(make)
    count = counting(table, where)
    before = {int(key): float(table.lookup(tf.constant(key, tf.int64))) for key in range(10)}

    def reference(x: Any, ids: Any) -> Any:
        return tf.tanh(x) * count(ids, 1.0)[:, tf.newaxis]

    def program(step: float) -> Callable[..., Any]:
        def parallel(x: Any, ids: Any) -> Any:
            counts, outputs = count(ids, step), []
            for device, part, own in zip(
                devices, tf.split(x, len(devices)), tf.split(counts, len(devices)), strict=True
            ):
                with tf.device(device.name):
                    outputs.append(tf.tanh(part) * own[:, tf.newaxis])
            return tf.concat(outputs, 0)

        return parallel

    right = verify(program(1.0), reference, INPUTS, devices=devices)
    assert right.verdict is Verdict.PASS, right
    wrong = verify(program(2.0), reference, INPUTS, devices=devices)
    assert {(each.kind, each.mode) for each in wrong.findings} == {("value", "eager, graph")}, wrong
    assert {key: float(table.lookup(tf.constant(key, tf.int64))) for key in before} == before


@pytest.mark.parametrize("make", [mutable, dense])
def test_keys_that_were_added_or_removed_are_restored_again_and_again(make: Callable[[], Any]) -> None:
    table = _filled(make)
    keys = tf.range(10, dtype=tf.int64)
    before = table.lookup(keys).numpy()
    snapshot = Snapshot.of([])
    with uses_noted(snapshot):
        table.insert(keys[:5], tf.ones([5]))
    for _ in range(3):
        snapshot.restore()
        np.testing.assert_array_equal(table.lookup(keys).numpy(), before)
        table.remove(keys[1:3])
        table.insert(keys[3:], tf.ones([7]))
