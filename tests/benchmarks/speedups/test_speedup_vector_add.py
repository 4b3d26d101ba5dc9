"""A sum of two vectors, a piece on each device: bound by memory, not by arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import add

import numpy as np
import pytest
from programs import SEVERAL, by_kind, held_on, in_turn, side_by_side

import harness

#: Elements a device: larger than any cache, so that memory is what is measured.
_GPU_ELEMENTS, _CORE_ELEMENTS = 1 << 28, 1 << 23
#: Two float32 are read and one is written.
_BYTES_PER_ELEMENT = 3 * 4


@pytest.mark.devices(min=SEVERAL)
def test_a_piece_of_the_sum_on_each_device(
    speedup: Callable[..., harness.SpeedupRecord], devices: harness.Devices
) -> None:
    elements = by_kind(devices, gpu=_GPU_ELEMENTS, other=_CORE_ELEMENTS)
    x = np.arange(elements, dtype=np.float32)
    there = [(held_on(device, x), held_on(device, x + 1.0)) for device in devices]
    here = [(held_on(devices[0], x), held_on(devices[0], x + 1.0)) for _ in devices]
    work = harness.Work(flops=len(devices) * elements, moved_bytes=len(devices) * elements * _BYTES_PER_ELEMENT)
    record = speedup(
        in_turn(devices[0], [partial(add, *pair) for pair in here]),
        side_by_side(devices, [partial(add, *pair) for pair in there]),
        devices=devices,
        work=work,
    )
    assert record.parallel_bytes_per_s is None or record.parallel_bytes_per_s > 0
