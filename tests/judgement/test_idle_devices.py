"""Devices that are idle: one finding, at the line of the work that should be on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, verify

X = np.random.default_rng(3).normal(size=(16, 4)).astype(np.float32)
W = np.random.default_rng(4).normal(size=(4, 4)).astype(np.float32) / 2


def _heavy(devices: Devices, places: Sequence[str]) -> Callable[..., Any]:
    def program(x: Any, big: Any) -> Any:
        results = []
        for device, place, rows in zip(devices, places, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):

                def heavy(rows: Any = rows, place: str = place) -> Any:
                    with tf.device(place):
                        return tf.nn.relu(rows @ W) @ W

                results.append(tf.cond(big, heavy, lambda rows=rows: rows @ W))
        return tf.concat(results, axis=0)

    return program


def test_devices_that_are_idle_as_their_work_is_elsewhere_are_one_finding(devices: Devices) -> None:
    def reference(x: Any, big: Any) -> Any:
        return tf.cond(big, lambda: tf.nn.relu(x @ W) @ W, lambda: x @ W)

    inputs = {"x": X, "big": np.array(True)}
    names = list(devices.names)
    assert verify(_heavy(devices, names), reference, inputs, devices=devices).verdict is Verdict.PASS
    found = verify(_heavy(devices, names[:1] * len(names)), reference, inputs, devices=devices)
    assert [finding.kind for finding in found.findings] == ["op-placement"], found
    assert any("unused-device" in line for line in found.findings[0].follows), found
    assert found.findings[0].wanted == tuple(str(device.parsed) for device in devices[1:])


@pytest.mark.parametrize("forgotten", [True, False])
def test_an_idle_device_is_placed_where_its_work_should_be(devices: Devices, forgotten: bool) -> None:
    def program(x: Any) -> Any:
        results = []
        for number, rows in enumerate(tf.split(x, len(devices))):
            if forgotten and number == len(devices) - 1:
                results.append(tf.tanh(rows @ W))  # in no scope
                continue
            with tf.device(devices[min(number, len(devices) - 2)].name):
                results.append(tf.tanh(rows @ W))  # in a scope
        return tf.concat(results, axis=0)

    found = verify(program, lambda x: tf.tanh(x @ W), {"x": X}, devices=devices)
    assert [finding.kind for finding in found.findings] == ["unused-device"], found
    lines = Path(__file__).read_text().splitlines()
    mark = "# in no scope" if forgotten else "# in a scope"
    line = next(number for number, text in enumerate(lines, 1) if text.endswith(mark))
    assert f"{Path(__file__).name}:{line})" in found.reason, found
