"""The devices of a process: :class:`Device`, and the sequence :class:`Devices`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, overload

from harness.devices.name import DeviceName
from harness.errors import UsageError
from harness.plural import plural

_HOST = "/job:localhost/replica:0/task:0/device:CPU:0"
DeviceKind = Literal["logical-cpu", "logical-gpu", "gpu", "software-gpu", "core", "remote"]


@dataclass(frozen=True, slots=True)
class Device:
    """One device. ``name`` is TensorFlow's full name, ``physical`` the name of the physical device under it."""

    name: str
    kind: DeviceKind
    physical: str

    @property
    def parsed(self) -> DeviceName:
        """The name, parsed."""
        return DeviceName.parse(self.name)

    def __str__(self) -> str:
        return self.name


class Devices(Sequence[Device]):
    """An immutable sequence of devices. A slice is a ``Devices`` too.

    ``spec`` is the requested spec, ``reason`` explains the selection, and ``host`` is the full name of the CPU device
    on which data is split and results are joined.
    """

    def __init__(self, devices: Iterable[Device], *, spec: str, reason: str = "", host: str = _HOST) -> None:
        self._devices = tuple(devices)
        self.spec = spec
        self.reason = reason
        self.host = host

    @classmethod
    def given(cls, devices: object, error: type[UsageError]) -> Devices:
        """Return ``devices`` as :class:`Devices`. Raise ``error`` if they are no sequence of devices, or none."""
        known = devices if isinstance(devices, Devices) else None
        if isinstance(devices, Sequence) and all(isinstance(each, Device) for each in devices):
            known = known or cls(devices, spec="")
        if known is None:
            raise error(f"devices={devices!r}; accepted: what harness.configure returned, or a slice of it")
        if not len(known):
            raise error("devices=() is empty; give what harness.configure returned, or a slice of it")
        return known

    @overload
    def __getitem__(self, index: int) -> Device: ...
    @overload
    def __getitem__(self, index: slice) -> Devices: ...
    def __getitem__(self, index: int | slice) -> Device | Devices:
        if isinstance(index, slice):
            return Devices(self._devices[index], spec=self.spec, reason=self.reason, host=self.host)
        return self._devices[index]

    def __len__(self) -> int:
        return len(self._devices)

    def __iter__(self) -> Iterator[Device]:
        return iter(self._devices)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Devices) and self._devices == other._devices

    def __hash__(self) -> int:
        return hash(self._devices)

    def __repr__(self) -> str:
        return f"Devices({', '.join(device.parsed.short for device in self)}; spec={self.spec!r})"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The full names, in order."""
        return tuple(device.name for device in self._devices)

    @property
    def counted(self) -> str:
        """How many there are, as results say it: ``2 devices``, or ``2 software GPUs``."""
        software = all(device.kind == "software-gpu" for device in self._devices)
        return plural(len(self._devices), "software GPU" if software else "device")
