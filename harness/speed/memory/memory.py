"""What users see: the memory of devices, and whether it grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.devices.device import Device, Devices
from harness.devices.name import DeviceName
from harness.errors import UsageError
from harness.speed.memory.leaks import Loop
from harness.speed.memory.peak import PeakWatch
from harness.speed.memory.sizes import Given, Size


class Memory:
    """The memory of ``devices``, watched from :meth:`reset` on.

    The unit is bytes. On GPUs and software GPUs the figures are those of TensorFlow's allocator. Logical CPUs share the
    memory of their process: for them, TensorFlow's profiler records what the ops of the process allocate.

    Examples:
        >>> memory = harness.Memory(harness.configure("softgpu:2"))
        >>> memory.reset()
        >>> loss = step(x)
        >>> memory.peak("GPU:1") < "2 GiB"
        True
        >>> for _ in memory.steady(steps=20):
        ...     loss = step(x)

    Raises:
        UsageError: ``devices`` is not what ``harness.configure`` returned.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self.devices = Devices.given(devices, UsageError)
        self._watch = PeakWatch(self.devices)

    def __repr__(self) -> str:
        return f"<Memory of {', '.join(device.parsed.short for device in self.devices)}>"

    def reset(self) -> None:
        """Forget the peaks until now. What the devices hold at this moment counts for the next peak.

        Raises:
            MemoryUnknown: one of the devices is a CPU, and TensorFlow's profiler is in use.
        """
        self._watch.start()

    def close(self) -> None:
        """Stop TensorFlow's profiler, if it is recording for this object."""
        self._watch.stop()

    def peak(self, device: str | Device) -> Size:
        """Return the most bytes that a device held at one time since :meth:`reset`, as an int that knows units.

        It compares with texts such as ``"16GB"`` and ``"1.5 GiB"``; ``source`` says how it was measured. On logical
        CPUs reading a peak ends the recording, until the next :meth:`reset`.

        Args:
            device: one of the devices, or its name, such as ``"GPU:1"``.

        Raises:
            UsageError: no device has this name.
            MemoryUnknown: the device belongs to another process, or its allocator keeps no statistics.
        """
        return self._watch.peak(self.device(device))

    def device(self, device: str | Device) -> Device:
        """Return one of the devices by its name. Raise UsageError if there is none."""
        if isinstance(device, Device) and device in self.devices:
            return device
        named = DeviceName.parse(str(device))
        found = [each for each in self.devices if each.parsed.matches(named)]
        if len(found) != 1:
            known = ", ".join(each.parsed.short for each in self.devices)
            raise UsageError(f"device {str(device)!r} names {len(found)} devices; accepted: one of {known}")
        return found[0]

    def steady(self, steps: int = 20, allowed: Given = 0) -> Iterator[int]:
        """Loop over steps, and raise if memory grows from step to step.

        The body of the loop is the step. After each one, the bytes on each device, the resources and the traced
        functions are counted. What grows for ``steps`` steps may be a cache that fills: then the loop goes on to three
        times as many, and what still grows is a leak. Leave the loop early, and nothing is judged.

        Args:
            steps: how many steps to take if nothing grows; 8 or more. The first quarter may fill caches.
            allowed: bytes that each step may keep on each device, as an int or a text such as ``"1 KiB"``.

        Raises:
            UsageError: ``steps`` or ``allowed`` is not usable.
            MemoryGrows: memory grows. The message says where, by how much, and what keeps it.
        """
        return Loop.given(self.devices, steps, allowed).run()
