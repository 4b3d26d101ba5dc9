"""The most memory that a program had on each device at one time.

On a GPU, TensorFlow's allocator keeps the peak. On logical CPUs it keeps none: there, TensorFlow's profiler records
each buffer as it is allocated and freed, which makes the peak beside the buffers that Python held before. Logical CPUs
share the memory of their process, so that they have one peak together.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from harness._tensorflow import parse_xspace
from harness.devices.device import Device, Devices
from harness.lazy import tf
from harness.plural import plural
from harness.speed.memory.allocations import record_cpu_allocations
from harness.speed.memory.changes import changes
from harness.speed.memory.errors import MemoryUnknown
from harness.speed.memory.held import buffers
from harness.speed.memory.sizes import Size
from harness.speed.timeline.xplane import Capture, capture_of

#: Ops, functions and allocations; no lines of Python, and no GPUs.
_HOST_LEVEL = 2
ALLOCATOR = "TensorFlow's allocator on the device"


class PeakWatch:
    """Watches the peaks of ``devices`` from :meth:`start` on, until :meth:`stop` or the first peak of a CPU is read."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self._cpus = [each for each in devices if _is_local_cpu(each)]
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._before: dict[int, int] = {}
        self._cpu_peak: int | None = None

    def start(self) -> None:
        """Forget all earlier peaks.

        Raises:
            MemoryUnknown: TensorFlow's profiler, which is needed on CPUs, is in use.
        """
        self.stop()
        self._cpu_peak = None
        tf.test.experimental.sync_devices()
        for device in self.devices:
            if device.parsed.kind == "GPU" and device.parsed.in_this_process:
                _statistics(device)
                tf.config.experimental.reset_memory_stats(device.parsed.short)
        if self._cpus:
            self._before = buffers()
            self._folder = tempfile.TemporaryDirectory(prefix="harness-memory-")
            options = tf.profiler.experimental.ProfilerOptions(
                host_tracer_level=_HOST_LEVEL, python_tracer_level=0, device_tracer_level=0
            )
            record_cpu_allocations(on=True)
            try:
                tf.profiler.experimental.start(self._folder.name, options=options)
            except tf.errors.AlreadyExistsError as error:
                self._end()
                raise MemoryUnknown(
                    self._cpus[0].parsed.short,
                    "TensorFlow's profiler, which records its allocations, is already running; stop it first",
                ) from error

    def stop(self) -> None:
        """Stop watching CPUs, if that goes on. What was seen until now stays."""
        if self._folder is not None:
            try:
                tf.test.experimental.sync_devices()
                tf.profiler.experimental.stop()
                self._cpu_peak = _cpu_peak(Path(self._folder.name), self._before)
            finally:
                self._end()

    def _end(self) -> None:
        if self._folder is not None:
            record_cpu_allocations(on=False)
            self._folder.cleanup()
        self._folder, self._before = None, {}

    def peak(self, device: Device) -> Size:
        """Return the peak of a device.

        Raises:
            MemoryUnknown: the device is in another process, or its allocator keeps no statistics.
        """
        tf.test.experimental.sync_devices()
        if device.parsed.kind == "GPU" and device.parsed.in_this_process:
            return Size(_statistics(device), ALLOCATOR)
        if not _is_local_cpu(device):
            raise MemoryUnknown(device.parsed.short, "it belongs to another process; use logical CPUs or GPUs")
        self.stop()
        if self._cpu_peak is None:
            raise MemoryUnknown(device.parsed.short, "nothing was watched")
        return Size(self._cpu_peak, self._cpu_source())

    def _cpu_source(self) -> str:
        source = "tensors that ops of this process allocated, by TensorFlow's profiler"
        if len(self._cpus) > 1:
            source += f"; the {plural(len(self._cpus), 'logical CPU')} share one memory, and this is all of it"
        return source


def _is_local_cpu(device: Device) -> bool:
    return device.parsed.kind == "CPU" and device.parsed.in_this_process


def _statistics(device: Device) -> int:
    try:
        return int(tf.config.experimental.get_memory_info(device.parsed.short)["peak"])
    except ValueError as error:
        raise MemoryUnknown(device.parsed.short, "its allocator keeps no statistics") from error


def _cpu_peak(folder: Path, before: Mapping[int, int]) -> int:
    found = list(folder.rglob("*.xplane.pb"))
    if len(found) != 1:
        raise MemoryUnknown("the CPU", f"TensorFlow's profiler wrote {plural(len(found), 'file')} instead of 1")
    return peak_of(capture_of(parse_xspace(found[0].read_bytes(), str(found[0])), "", str(found[0])), before)


def peak_of(capture: Capture, before: Mapping[int, int]) -> int:
    """Return the peak in bytes from a profile; ``before`` are the sizes of the buffers that were there, by address."""
    alive = dict(before)
    now = peak = sum(alive.values())
    for change in changes(capture).get("cpu", ()):
        now -= alive.pop(change.address, 0)
        if change.asked_bytes is not None:
            alive[change.address] = change.asked_bytes
            now += change.asked_bytes
            peak = max(peak, now)
    return peak
