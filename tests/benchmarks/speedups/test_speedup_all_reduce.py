"""All-reduce: afterwards each device has the sum of what all had.

The baseline lets one device add everything up. In parallel, each adds up its share of the elements and hands it out, as
ring algorithms do (Patarasuk and Yuan 2009), so that no device moves more than the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import SEVERAL, by_kind, compiled, held_on

import harness

#: float32 elements a device: the gradients of a model of this size.
_GPU_ELEMENTS, _CORE_ELEMENTS = 1 << 26, 1 << 20


@pytest.mark.devices(min=SEVERAL)
def test_sum_on_every_device(speedup: Callable[..., harness.SpeedupRecord], devices: harness.Devices) -> None:
    import tensorflow as tf

    count = len(devices)
    elements = by_kind(devices, gpu=_GPU_ELEMENTS, other=_CORE_ELEMENTS) // count * count
    random = np.random.default_rng(0)
    own = [held_on(device, random.standard_normal(elements, np.float32)) for device in devices]

    def read() -> list[Any]:
        values = []
        for device, variable in zip(devices, own, strict=True):
            with tf.device(device.name):
                values.append(variable.read_value())
        return values

    def on_every_device(make: Callable[[], Any]) -> list[Any]:
        results = []
        for device in devices:
            with tf.device(device.name):
                results.append(tf.identity(make()))
        return results

    def by_the_first() -> Any:
        values = read()
        with tf.device(devices[0].name):
            total = tf.add_n(values)
        return on_every_device(lambda: total)

    def by_all() -> Any:
        pieces = []
        for device, value in zip(devices, read(), strict=True):
            with tf.device(device.name):
                pieces.append(tf.split(value, count))
        sums = []
        for device, share in zip(devices, zip(*pieces, strict=True), strict=True):
            with tf.device(device.name):
                sums.append(tf.add_n(list(share)))
        return on_every_device(lambda: tf.concat(sums, axis=0))

    # Each device has to send and to receive all but its own share, once to add up and once to hand out.
    moved_bytes = 4.0 * elements * 2 * (count - 1)
    record = speedup(
        compiled(by_the_first), compiled(by_all), devices=devices, work=harness.Work(moved_bytes=moved_bytes)
    )
    assert record.transfers != 0
