"""A time ends when the work is done (FAULTS S03): shown on ops that are still running when the call returns.

No time is compared with another: the op waits for the test, so that it cannot be done before the test lets it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import harness
from harness.speed.synchronise import synchronise, tensors_of


def read_the_clock_with_and_without_waiting() -> None:
    """TensorFlow runs eager ops asynchronously here, as it does on a GPU."""
    import threading

    import tensorflow as tf

    tf.config.experimental.set_synchronous_execution(False)
    release = threading.Event()
    finished: list[int] = []

    def work(x: tf.Tensor) -> tf.Tensor:
        release.wait(30.0)
        finished.append(len(finished))
        return x

    def call() -> tf.Tensor:
        return tf.py_function(work, [tf.constant(1.0)], tf.float32)

    output = call()
    # A naive stopwatch reads the clock here, and has seen nothing of the work.
    naive = len(finished)
    release.set()
    synchronise([output])
    waited = len(finished)

    seen: list[tuple[int, int]] = []
    started = [waited]

    def counted() -> tf.Tensor:
        started[0] += 1
        return call()

    def clock() -> int:
        # All that was started before the clock is read has ended: at both ends of each time.
        seen.append((started[0], len(finished)))
        return len(seen) * 1_000_000

    devices = [harness.Device("/job:localhost/replica:0/task:0/device:CPU:0", "logical-cpu", "/physical_device:CPU:0")]
    from harness.speed.measure import measure_pairs

    measured = measure_pairs(counted, counted, devices=devices, budget_s=0.1, half_width=0.5, clock=clock)
    print(json.dumps({"naive": naive, "waited": waited, "pairs": len(measured.samples.single_ns), "seen": seen}))


def test_a_naive_stopwatch_sees_nothing_of_the_work_and_ours_all_of_it(
    fresh_process: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    said = json.loads(fresh_process(read_the_clock_with_and_without_waiting).stdout.splitlines()[-1])
    assert said["naive"] == 0, "the op ran on while the naive stopwatch was read"
    assert said["waited"] == 1
    assert said["pairs"] >= 5
    assert len(said["seen"]) > 2 * said["pairs"]
    assert all(started == finished for started, finished in said["seen"])


def test_every_tensor_of_a_nest_is_waited_for(devices: harness.Devices) -> None:
    import tensorflow as tf

    sparse = tf.sparse.from_dense([[0.0, 1.0]])
    nest = {
        "plain": tf.ones([2, 3]),
        "empty": tf.zeros([0, 3]),
        "variable": tf.Variable(1.0),
        "keras": tf.keras.Variable(tf.ones([2])),
        "slices": tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0])),
        "ragged": tf.ragged.constant([[1], [2, 3]]),
        "sparse": sparse,
        "text": tf.constant("a"),
        "none": None,
        "number": 3.0,
    }
    # Two parts each of slices and ragged, three of sparse; of slices the shape is none.
    assert len(tensors_of(nest)) == 1 + 1 + 1 + 1 + 2 + 2 + 3 + 1
    synchronise(nest)


@dataclass
class Fields:
    loss: Any
    name: str


def test_the_tensors_in_the_fields_of_an_object_are_waited_for(devices: harness.Devices) -> None:
    import tensorflow as tf

    with tf.device(devices[0].name):
        loss = tf.constant([1.0])
    assert tensors_of([Fields(loss, "a"), Fields([loss], "b")]) == [loss, loss]


@pytest.mark.parametrize("nothing", [None, [], {}, 1.0])
def test_outputs_without_tensors_are_waited_for_by_their_devices_alone(
    devices: harness.Devices, nothing: object
) -> None:
    assert tensors_of(nothing) == []
    synchronise(nothing)
