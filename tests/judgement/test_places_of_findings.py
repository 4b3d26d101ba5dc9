"""A finding about a place is one for all devices, and its first line names the line of the program."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import harness
from harness.faults.samples import sample
from harness.records import Verdict

MODES = ("eager", "graph")


def _line(fn: Callable[..., Any], marker: str) -> str:
    """``file.py:12`` of the line of a function that ends with a comment."""
    lines, first = inspect.getsourcelines(fn)
    [number] = [first + index for index, line in enumerate(lines) if line.rstrip().endswith(f"# {marker}")]
    return f"tests/judgement/test_places_of_findings.py:{number}"


@pytest.mark.parametrize("graph", [False, True], ids=["plain", "tf.function"])
def test_a_hard_coded_device_is_one_finding_with_its_lines(graph: bool, devices: harness.Devices) -> None:
    first, second = tf.Variable(sample(6, 5)), tf.Variable(sample(5, 4, seed=2))

    def layer(h: Any) -> Any:
        return tf.tanh(tf.matmul(h, second))  # the layer

    def towers(x: Any, name: Callable[[Any], str]) -> Any:
        results = []
        for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                h = tf.matmul(part, first)
            with tf.device(name(device)):
                results.append(layer(h))  # the call
        return tf.concat(results, 0)

    def verified(name: Callable[[Any], str]) -> harness.Verification:
        program = lambda x: towers(x, name)  # noqa: E731
        return harness.verify(
            tf.function(program) if graph else program,
            lambda x: layer(tf.matmul(x, first)),
            {"x": sample(2 * len(devices), 6)},
            devices=devices,
            modes=MODES,
        )

    found = verified(lambda _: devices[0].name)
    [finding] = found.findings
    assert (finding.kind, finding.mode) == ("op-placement", "eager, graph")
    assert found.reason.startswith("Work on a shard ran in a device scope that is not the shard's "), found
    assert f"({_line(layer, 'the layer')}, called at {_line(towers, 'the call')}): " in found.reason, found
    assert "MatMul" in found.reason.partition("): ")[2], found
    clean = verified(lambda device: str(device.name))
    assert clean.verdict is Verdict.PASS, clean


@pytest.mark.parametrize("mode", MODES)
def test_backward_ops_elsewhere_are_one_finding_with_the_line_of_the_gradient(
    mode: str, devices: harness.Devices
) -> None:
    weights = tf.Variable(sample(6, 5))

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            total = tf.constant(0.0)
            for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
                with tf.device(device.name):
                    loss = tf.reduce_sum(tf.tanh(tf.matmul(part, weights)))
                total += loss
        return tape.gradient(total, weights)  # the gradient

    def reference(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(tf.matmul(x, weights)))
        return tape.gradient(loss, weights)

    inputs = {"x": sample(2 * len(devices), 6)}
    found = harness.verify(step, reference, inputs, devices=devices, modes=[mode], gradients=False)
    [finding] = found.findings
    assert finding.kind == "gradient-placement"
    assert f"({_line(step, 'the gradient')}): " in found.reason, found
    clean = harness.verify(
        harness.colocate_gradients(step), reference, inputs, devices=devices, modes=[mode], gradients=False
    )
    assert clean.verdict is Verdict.PASS, clean


def test_devices_without_work_are_one_finding(devices: harness.Devices) -> None:
    fn = lambda x: tf.tanh(x)  # noqa: E731
    found = harness.verify(fn, fn, {"x": sample(8, 3)}, devices=devices)
    [finding] = found.findings
    names = [device.parsed.short for device in devices[1:]]
    assert all(name in finding.where for name in names), finding
    assert f"({_line(test_devices_without_work_are_one_finding, 'noqa: E731')})" in found.reason, found
