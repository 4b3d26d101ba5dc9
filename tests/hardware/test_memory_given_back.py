"""Memory that was freed is handed back before a buffer is refused for lack of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.devices.device import Device
from harness.hardware import host_slots, real
from harness.hardware.host_slots import HostSlots
from harness.hardware.machine import DeviceMemoryFull

CPU = Device("/job:localhost/replica:0/task:0/device:CPU:0", "logical-cpu", "/physical_device:CPU:0")
WANTED_BYTES = 2**30


@pytest.mark.parametrize("found_again", [True, False])
def test_a_buffer_is_refused_only_when_what_was_freed_is_not_enough(
    monkeypatch: pytest.MonkeyPatch, found_again: bool
) -> None:
    free = [0]
    monkeypatch.setattr(real, "host_free_bytes", lambda: free[0])
    monkeypatch.setattr(
        real, "give_back_unused_memory", lambda: free.__setitem__(0, 2 * WANTED_BYTES if found_again else 0)
    )
    machine: Any = SimpleNamespace(_slots=SimpleNamespace(drop=lambda: None))
    if found_again:
        real.TensorFlowMachine._require_room(machine, CPU, WANTED_BYTES)
        return
    with pytest.raises(DeviceMemoryFull):
        real.TensorFlowMachine._require_room(machine, CPU, WANTED_BYTES)


@pytest.mark.usefixtures("devices")
def test_memory_for_copies_is_kept_for_the_size_that_was_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    monkeypatch.setattr(host_slots, "_KEPT_BYTES", 3 * 2**20)
    slots = HostSlots(lambda device, size_bytes: None)
    small, large, huge = (tf.zeros([size * 2**17], tf.int64) for size in (1, 2, 4))
    held = [slots.array_of(small) for _ in range(3)]
    del held
    for tensor in (large, huge, large):
        slots.array_of(tensor)
    sizes = [sum(size for _, size in there) for there in slots._free.values()]
    assert sizes == [2**20, 2 * 2**20], "one of the small ones is left, what is too large never was kept"
    assert sum(sizes) == slots._kept_bytes
    before = slots._free[next(reversed(slots._free))][0][0]
    again = slots.array_of(large)
    assert again is not None
    assert again.ctypes.data == before.ctypes.data


def test_tensors_are_brought_to_one_array_in_their_order() -> None:
    import tensorflow as tf

    slots = HostSlots(lambda device, size_bytes: None)
    parts = tf.range(5, dtype=tf.int64), tf.range(7, 10, dtype=tf.int64)
    found = slots.array_of(*parts)
    assert found is not None
    assert found.tolist() == [0, 1, 2, 3, 4, 7, 8, 9]
    whole = slots.array_of(tf.ones([2, 3], tf.int64))
    assert whole is not None
    assert whole.shape == (2, 3)
    assert slots.array_of(tf.ones([2], tf.bfloat16)) is None
