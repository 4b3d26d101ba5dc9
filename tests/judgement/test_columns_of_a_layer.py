"""Columns of unequal width on two devices are parts of a model: the program chooses which device joins them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import harness
from harness.faults.samples import sample
from harness.records import Verdict

pytestmark = pytest.mark.devices(min=2)
WIDTHS = (5, 3)
Made = tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]


def _activated(x: Any) -> Any:
    return tf.nn.relu(x) ** 2


def _columns(devices: harness.Devices, joined_on: int | None, work: Callable[[Any], Any], at: int | None) -> Made:
    """Columns of weights on two devices; ``work`` on each, on its own device or on ``at``; then joined."""
    weights = tf.Variable(sample(6, 8))

    def parallel(x: Any) -> Any:
        outputs = []
        for device, columns in zip(devices, tf.split(weights, WIDTHS, axis=1), strict=True):
            with tf.device(device.name):
                outputs.append(tf.tanh(tf.matmul(x, columns)))
        for number, device in enumerate(devices):
            with tf.device((device if at is None else devices[at]).name):
                outputs[number] = work(outputs[number])
        with tf.device(None if joined_on is None else devices[joined_on].name):
            return tf.concat(outputs, 1)

    return parallel, lambda x: work(tf.tanh(tf.matmul(x, weights))), {"x": sample(8, 6)}


@pytest.mark.parametrize("joined_on", [None, 0, 1])
def test_columns_are_joined_anywhere(devices: harness.Devices, joined_on: int | None) -> None:
    program = _columns(devices[:2], joined_on, _activated, None)
    assert harness.verify(*program, devices=devices[:2]).verdict is Verdict.PASS


@pytest.mark.parametrize("last", [0, 1])
def test_a_device_goes_on_with_all_columns_that_it_joins(devices: harness.Devices, last: int) -> None:
    program = _columns(devices[:2], last, _activated, last)
    assert harness.verify(*program, devices=devices[:2]).verdict is Verdict.PASS


def test_work_on_columns_on_the_other_device_is_found_where_that_does_not_join_them(devices: harness.Devices) -> None:
    program = _columns(devices[:2], None, _activated, 0)
    found = harness.verify(*program, devices=devices[:2])
    assert [finding.kind for finding in found.findings] == ["op-placement"], found


@pytest.mark.parametrize("in_the_loop", [True, False])
def test_a_join_of_rows_is_found_where_the_loop_makes_it_for_every_part(
    devices: harness.Devices, in_the_loop: bool
) -> None:
    """Where a join runs after the loop is nobody's fault."""

    def parallel(x: Any) -> Any:
        outputs = []
        for device, rows in zip(devices[:2], tf.split(x, WIDTHS), strict=True):
            with tf.device(device.name):
                outputs.append(tf.tanh(rows))
                joined = tf.concat(outputs, 0) if in_the_loop else None
        with tf.device(devices[1].name):
            return joined if in_the_loop else tf.concat(outputs, 0)

    found = harness.verify(parallel, tf.tanh, {"x": sample(8, 6)}, devices=devices[:2])
    assert ("are joined inside the scope of one of them" in found.reason) == in_the_loop, found
    assert found.passed != in_the_loop, found


def test_an_activation_that_a_graph_fuses_with_the_product_on_another_device_is_right(devices: harness.Devices) -> None:
    """The optimizer of graphs makes one op of a product, an addition and an activation, on the product's device."""
    weights, bias, more = tf.Variable(sample(6, 8)), tf.Variable(sample(8)), tf.Variable(sample(8, 3))

    def parallel(x: Any) -> Any:
        outputs = []
        for device, columns in zip(devices[:2], tf.split(weights, WIDTHS, axis=1), strict=True):
            with tf.device(device.name):
                outputs.append(tf.matmul(x, columns))
        with tf.device(devices[0].name):
            hidden = [tf.nn.relu(own + each) for own, each in zip(outputs, tf.split(bias, WIDTHS), strict=True)]
            return tf.matmul(tf.concat(hidden, 1), more)

    def reference(x: Any) -> Any:
        return tf.matmul(tf.nn.relu(tf.matmul(x, weights) + bias), more)

    found = harness.verify(parallel, reference, {"x": sample(8, 6)}, devices=devices[:2])
    assert found.verdict is Verdict.PASS, found
