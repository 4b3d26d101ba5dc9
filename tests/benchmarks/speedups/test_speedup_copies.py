"""Copies: from the host to each device, and from each device to the next, one after the other and at once.

What arrives is added to at its destination, and compared: a copy that nothing reads need not be made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from programs import SEVERAL, by_kind, compiled, held_on

import harness

#: float32 elements of one copy.
_GPU_ELEMENTS, _CORE_ELEMENTS = 1 << 26, 1 << 20


def _copies(sources: Sequence[Any], destinations: Sequence[harness.Device], *, in_turn: bool) -> Callable[[], Any]:
    """Copy each source to its destination, each after the one before if ``in_turn``."""
    import tensorflow as tf

    def run() -> Any:
        arrived: list[Any] = []
        for source, destination in zip(sources, destinations, strict=True):
            with tf.control_dependencies(arrived[-1:] if in_turn else []):
                with tf.device(source.device):
                    value = source.read_value()
                with tf.device(destination.name):
                    arrived.append(value + 1.0)
        return arrived

    return compiled(run)


@pytest.mark.devices(min=SEVERAL)
@pytest.mark.parametrize("route", ["host to device", "device to device"])
def test_copies(speedup: Callable[..., harness.SpeedupRecord], devices: harness.Devices, route: str) -> None:
    elements = by_kind(devices, gpu=_GPU_ELEMENTS, other=_CORE_ELEMENTS)
    values = [np.full(elements, index, np.float32) for index in range(len(devices))]
    host = harness.Device(devices.host, "logical-cpu", "/physical_device:CPU:0")
    from_host = route == "host to device"
    sources = [held_on(host if from_host else device, value) for device, value in zip(devices, values, strict=True)]
    destinations = list(devices) if from_host else [*devices[1:], devices[0]]
    record = speedup(
        _copies(sources, destinations, in_turn=True),
        _copies(sources, destinations, in_turn=False),
        devices=devices,
        work=harness.Work(moved_bytes=4.0 * elements * len(devices)),
    )
    assert record.transfers != 0
