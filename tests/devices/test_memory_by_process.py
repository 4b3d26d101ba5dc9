"""Which process has how much of a GPU's memory, as NVML tells it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from harness.devices.nvidia import memory_by_process


def test_what_the_driver_does_not_say_is_not_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = [SimpleNamespace(pid=7, usedGpuMemory=3 * 2**20), SimpleNamespace(pid=8, usedGpuMemory=None)]
    nvml = SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: b"GPU-1",
        nvmlDeviceGetComputeRunningProcesses=lambda handle: processes,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert memory_by_process() == {("GPU-1", 7): 3, ("GPU-1", 8): None}
