"""Members that wait for each other without a reason work one after the other, as shards do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tensorflow as tf

import harness
from harness import Device, Devices
from harness.records import Verdict

SIDE = 16


def _members(devices: Sequence[Device], *, joined: bool) -> Callable[[bool, Sequence[Device]], Any]:
    """Two models with weights of their own, on the same rows."""
    weights = [tf.Variable(tf.random.stateless_normal((SIDE, SIDE), (each, 1))) for each, _ in enumerate(devices)]

    def program(serial: bool, used: Sequence[Device]) -> Any:
        def run(x: tf.Tensor) -> Any:
            results: list[tf.Tensor] = []
            for weight, device in zip(weights, used, strict=True):
                with tf.control_dependencies(results if serial else []), tf.device(device.name):
                    results.append(tf.matmul(tf.nn.relu(tf.matmul(x, weight)), weight))
            return tf.add_n(results) if joined else results

        return run

    return program


@pytest.mark.parametrize("joined", [True, False])
def test_members_that_wait_for_each_other_are_found_and_others_pass(devices: Devices, joined: bool) -> None:
    some = devices[:2]
    made = _members(some, joined=joined)
    inputs = {"x": tf.random.stateless_normal((8, SIDE), (7, 7))}
    single = made(False, [some[0]] * 2)
    found = harness.verify(made(True, some), single, inputs, devices=some, modes=("graph",))
    assert [finding.kind for finding in found.findings] == ["serial-devices"], found
    assert "take it out of tf.control_dependencies" in found.reason
    clean = harness.verify(made(False, some), single, inputs, devices=some, modes=("graph",))
    assert clean.verdict is Verdict.PASS, clean


def test_stages_may_wait_for_what_they_read(devices: Devices) -> None:
    first, second = (tf.Variable(tf.random.stateless_normal((SIDE, SIDE), (each, 2))) for each in range(2))
    some = devices[:2]

    def stages(used: Sequence[Device]) -> Callable[[tf.Tensor], tf.Tensor]:
        def run(x: tf.Tensor) -> tf.Tensor:
            with tf.device(used[0].name):
                hidden = tf.matmul(tf.nn.relu(tf.matmul(x, first)), first)
            with tf.control_dependencies([hidden]), tf.device(used[1].name):
                return tf.matmul(tf.nn.relu(tf.matmul(hidden, second)), second)

        return run

    inputs = {"x": tf.random.stateless_normal((8, SIDE), (7, 7))}
    found = harness.verify(stages(some), stages([some[0]] * 2), inputs, devices=some, modes=("graph",))
    assert found.verdict is Verdict.PASS, found
