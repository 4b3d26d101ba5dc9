"""Memory that was freed is handed back before a buffer is refused for lack of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.devices.device import Device
from harness.machine import real
from harness.machine.machine import DeviceMemoryFull

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
