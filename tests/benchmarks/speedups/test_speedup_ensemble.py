"""Training steps of several models, each on a device of its own, against one after the other on the first device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import SEVERAL, by_kind, held_on, in_turn

import harness

_LAYERS = 3
_LEARNING_RATE = 1e-3
_GPU_UNITS, _CORE_UNITS = 8192, 384
_GPU_ROWS, _CORE_ROWS = 8192, 384


@pytest.mark.devices(min=SEVERAL)
def test_a_training_step_of_each_model(speedup: Callable[..., harness.SpeedupRecord], devices: harness.Devices) -> None:
    import tensorflow as tf

    units = by_kind(devices, gpu=_GPU_UNITS, other=_CORE_UNITS)
    rows = by_kind(devices, gpu=_GPU_ROWS, other=_CORE_ROWS)
    random = np.random.default_rng(0)
    start = [random.standard_normal((units, units), np.float32) * np.float32(units**-0.5) for _ in range(_LAYERS)]
    batch = random.standard_normal((rows, units), np.float32)

    def step_on(device: harness.Device) -> Callable[[], Any]:
        weights, x = [held_on(device, value) for value in start], held_on(device, batch)

        def step() -> Any:
            with tf.GradientTape() as tape:
                value = x.read_value()
                for weight in weights:
                    value = tf.tanh(tf.matmul(value, weight))
                loss = tf.reduce_mean(tf.square(value))
            for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
                weight.assign_sub(_LEARNING_RATE * gradient)
            return loss

        return step

    together = harness.ensemble([step_on(device) for device in devices], devices)
    all_on_one = in_turn(devices[0], [step_on(devices[0]) for _ in devices])
    flops = len(devices) * 3 * 2.0 * _LAYERS * rows * units**2
    record = speedup(all_on_one, tf.function(lambda: together()), devices=devices, work=harness.Work(flops=flops))
    assert record.devices == devices.names
