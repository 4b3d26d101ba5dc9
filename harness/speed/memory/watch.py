"""Peak memory during a measurement: of a GPU from its allocator, of a CPU from its process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from harness.devices.device import Device
from harness.devices.runtime import server_process
from harness.lazy import tf
from harness.speed.record import DeviceMemory


@dataclass
class MemoryWatch:
    """Watches the memory of ``devices``.

    TensorFlow's allocator records the peak of each GPU. For a process, the peak is the largest resident set that
    :meth:`look` saw: call it while the outputs are alive.
    """

    devices: Sequence[Device]
    _resident: dict[int, int] = field(default_factory=dict)
    _processes: dict[int, Any] = field(default_factory=dict)

    def start(self) -> None:
        """Start: reset the allocators' peaks."""
        import psutil

        for device in self.devices:
            if _is_gpu(device):
                _reset(device)
            elif (pid := process_of(device)) is not None:
                self._processes.setdefault(pid, psutil.Process(pid))

    def look(self) -> None:
        """Read the resident set of each process."""
        for pid, process in self._processes.items():
            self._resident[pid] = max(self._resident.get(pid, 0), int(process.memory_info().rss))

    def peaks(self) -> tuple[DeviceMemory, ...]:
        """Give the peak of each device since :meth:`start`, in bytes."""
        return tuple(self._peak(device) for device in self.devices)

    def _peak(self, device: Device) -> DeviceMemory:
        if _is_gpu(device):
            return DeviceMemory(device.name, _allocated(device), "TensorFlow's allocator on the device")
        pid = process_of(device)
        if pid is None:
            return DeviceMemory(device.name, None, "the process of the device is unknown")
        sharing = sum(process_of(other) == pid for other in self.devices if not _is_gpu(other))
        source = "resident set of its process"
        if sharing > 1:
            source += f", which holds {sharing} of these devices"
        return DeviceMemory(device.name, self._resident.get(pid), source)


def process_of(device: Device) -> int | None:
    """Give the process id of a device: this process, a server of ``cores:N``, or ``None`` if unknown."""
    return os.getpid() if device.parsed.in_this_process else server_process(device)


def _is_gpu(device: Device) -> bool:
    return device.parsed.kind == "GPU"


def _reset(device: Device) -> None:
    with suppress(ValueError):  # an allocator without statistics; the peak is then None
        tf.config.experimental.reset_memory_stats(device.parsed.short)


def _allocated(device: Device) -> int | None:
    try:
        return int(tf.config.experimental.get_memory_info(device.parsed.short)["peak"])
    except ValueError:
        return None
