"""A pipeline in micro-batches against the same pipeline with the batch in one piece: what overlap is worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import SEVERAL, by_kind, compiled, held_on

import harness

#: With N stages and M micro-batches, M + N - 1 steps of time do the work of M * N: 16/9 for 2 stages and 8.
MICROBATCHES = 8
_LAYERS = 4
#: So that a micro-batch's products are large too: below about 1e9 floating-point operations TensorFlow takes another
#: kernel on CPUs, at two thirds of the rate, and the batch in one piece would win by that alone.
_GPU_UNITS, _CORE_UNITS = 8192, 1024
_GPU_ROWS, _CORE_ROWS = 8192, 4096


@pytest.mark.devices(min=SEVERAL)
def test_micro_batches(speedup: Callable[..., harness.SpeedupRecord], devices: harness.Devices) -> None:
    import tensorflow as tf

    units = by_kind(devices, gpu=_GPU_UNITS, other=_CORE_UNITS)
    rows = by_kind(devices, gpu=_GPU_ROWS, other=_CORE_ROWS)
    random = np.random.default_rng(0)
    scale = np.float32(units**-0.5)

    def stage_on(device: harness.Device) -> Callable[[Any], Any]:
        weights = [held_on(device, random.standard_normal((units, units), np.float32) * scale) for _ in range(_LAYERS)]

        def stage(x: Any) -> Any:
            for weight in weights:
                x = tf.tanh(tf.matmul(x, weight))
            return x

        return stage

    stages = [stage_on(device) for device in devices]
    x = held_on(devices[0], random.standard_normal((rows, units), np.float32))

    def run_in(microbatches: int) -> Callable[[], Any]:
        pipe = harness.pipeline(stages, devices, microbatches=microbatches)

        def run() -> Any:
            with tf.device(devices[0].name):
                whole = x.read_value()
            return pipe(x=whole)

        return compiled(run)

    flops = 2.0 * _LAYERS * len(devices) * rows * units**2
    record = speedup(run_in(1), run_in(MICROBATCHES), devices=devices, work=harness.Work(flops=flops))
    assert record.devices == devices.names
