"""Peak memory while something is measured: of a GPU what its allocator says, of a CPU the memory of its process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.devices.device import Device
from harness.speed.record import DeviceMemory


@dataclass
class MemoryWatch:
    """Watches the memory of ``devices``.

    TensorFlow's allocator keeps the peak of each GPU itself. For a process, the largest resident set among the looks
    is taken: call :meth:`look` while what was computed is still held. ``process_of`` gives the process id of a
    device, ``None`` where it is not known.
    """

    devices: Sequence[Device]
    process_of: Callable[[Device], int | None]
    _resident: dict[int, int] = field(default_factory=dict)
    _processes: dict[int, Any] = field(default_factory=dict)

    def start(self) -> None:
        """Begin: the allocators forget their peaks."""
        import psutil

        for device in self.devices:
            if _is_gpu(device):
                _reset(device)
            elif (pid := self.process_of(device)) is not None:
                self._processes.setdefault(pid, psutil.Process(pid))

    def look(self) -> None:
        """Read the resident set of each process."""
        for pid, process in self._processes.items():
            self._resident[pid] = max(self._resident.get(pid, 0), int(process.memory_info().rss))

    def peaks(self) -> tuple[DeviceMemory, ...]:
        """What was seen since :meth:`start`, one entry a device, in bytes."""
        return tuple(self._peak(device) for device in self.devices)

    def _peak(self, device: Device) -> DeviceMemory:
        if _is_gpu(device):
            return DeviceMemory(device.name, _allocated(device), "TensorFlow's allocator on the device")
        pid = self.process_of(device)
        if pid is None:
            return DeviceMemory(device.name, None, "the process that carries the device is not known")
        sharing = sum(self.process_of(other) == pid for other in self.devices if not _is_gpu(other))
        source = "resident set of its process"
        if sharing > 1:
            source += f", which carries {sharing} of these devices"
        return DeviceMemory(device.name, self._resident.get(pid), source)


def _is_gpu(device: Device) -> bool:
    return device.parsed.kind == "GPU"


def _reset(device: Device) -> None:
    import tensorflow as tf

    try:
        tf.config.experimental.reset_memory_stats(device.parsed.short)
    except ValueError:
        # An allocator without statistics; what it says of them is asked for, and told as missing, at the end.
        return


def _allocated(device: Device) -> int | None:
    import tensorflow as tf

    try:
        return int(tf.config.experimental.get_memory_info(device.parsed.short)["peak"])
    except ValueError:
        return None
