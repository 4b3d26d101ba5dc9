"""How far rounding moves sums that cancel is measured within a ``tf.function`` too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness

pytestmark = pytest.mark.devices(min=2)
_X = np.random.default_rng(0).normal(size=(1024, 8)).astype("float32")


def test_a_program_in_a_function_has_the_tolerance_of_its_ops(devices: harness.Devices) -> None:
    """The sum of many numbers, less another sum of them: next to nothing is left, which another order changes."""
    w = tf.Variable(np.ones((8, 3), np.float32))

    def sums(x: Any) -> Any:
        return tf.reduce_sum(tf.sin(tf.matmul(x, w)), 0)

    def towers(x: Any, share: float = 1.0) -> Any:
        parts = []
        for device, part in zip(devices[:2], tf.split(x, 2), strict=True):
            with tf.device(device.name):
                parts.append(sums(part) - sums(part[::-1]) * share)
        return tf.add_n(parts)

    def one(x: Any) -> Any:
        return sums(x) - sums(x[::-1])

    def bound(wrapped: Callable[[Any], Any], share: float = 1.0) -> float:
        options: dict[str, Any] = {"devices": devices[:2], "modes": ["graph"], "prove": False}
        found = harness.verify(wrapped(lambda x: towers(x, share)), wrapped(one), {"x": _X}, **options)
        assert any(finding.kind == "value" for finding in found.findings) is (share < 1.0), found
        return found.comparisons[0].bound

    assert bound(tf.function) == pytest.approx(bound(lambda fn: fn), rel=0.5)
    bound(tf.function, 0.5)
