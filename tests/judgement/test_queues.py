"""Queues and tables that a program writes to: their ops run where they are, whatever the scope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
from harness.faults.samples import sample
from harness.records import Verdict

pytestmark = pytest.mark.devices(min=2)

Program = Callable[..., Any]


def _first(x: Any, weights: Any) -> Any:
    return tf.tanh(tf.matmul(x, weights))


def _queue(devices: harness.Devices, misplaced: bool, many: bool) -> tuple[Program, Program]:
    """Each device hands its rows over to the next one through a queue."""
    weights, names = tf.Variable(sample(4, 4)), devices.names
    queue = tf.queue.FIFOQueue(100, [tf.float32], shapes=[[4] if many else [2, 4]])

    def handed_over(x: Any) -> Any:
        for name, part in zip(names, tf.split(x, len(names)), strict=True):
            with tf.device(name):
                hidden = _first(part, weights)
            with tf.device(names[0] if misplaced else name):
                hidden = _first(tf.sin(hidden), weights)
                (queue.enqueue_many if many else queue.enqueue)(hidden)
        results = []
        for name in (*names[1:], names[0]):
            with tf.device(name):
                results.append(tf.exp(queue.dequeue_many(2) if many else queue.dequeue()))
        return tf.concat(results, 0)

    return handed_over, lambda x: tf.exp(_first(tf.sin(_first(x, weights)), weights))


def _table(devices: harness.Devices, misplaced: bool, many: bool) -> tuple[Program, Program]:
    """Each device writes what it has made of its rows to one table."""
    del many
    weights, names = tf.Variable(sample(4, 4)), devices.names
    table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, tf.zeros([4]), -1, -2)
    keys = np.arange(2 * len(names))

    def written(x: Any) -> Any:
        for at, (name, part) in enumerate(zip(names, tf.split(x, len(names)), strict=True)):
            with tf.device(name):
                hidden = _first(part, weights)
            with tf.device(names[0] if misplaced else name):
                table.insert(keys[2 * at : 2 * at + 2], _first(tf.sin(hidden), weights))
        return table.lookup(keys)

    return written, lambda x: _first(tf.sin(_first(x, weights)), weights)


@pytest.mark.cases(1)
@pytest.mark.parametrize("misplaced", [False, True])
@pytest.mark.parametrize(("made", "many"), [(_queue, False), (_queue, True), (_table, False)])
def test_what_goes_through_a_queue_or_a_table(
    devices: harness.Devices, made: Callable[..., tuple[Program, Program]], many: bool, misplaced: bool
) -> None:
    program, reference = made(devices, misplaced, many)
    found = harness.verify(program, reference, {"x": sample(2 * len(devices), 4)}, devices=devices)
    if not misplaced:
        assert found.verdict is Verdict.PASS, found
        return
    assert found.verdict is Verdict.FAIL, found
    assert {each.kind for each in found.findings} == {"op-placement"}, found
    assert {each.mode for each in found.findings} == {"eager, graph"}, found
    assert not any(word in found.reason for word in ("Queue", "Lookup")), found
