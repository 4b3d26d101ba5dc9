"""The devices that a test needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from harness.devices.device import DeviceKind, Devices
from harness.errors import UsageError
from harness.plural import plural

KINDS: tuple[str, ...] = get_args(DeviceKind)


@dataclass(frozen=True, slots=True)
class Needs:
    """At least ``minimum`` devices of ``kinds`` (of any kind if empty)."""

    minimum: int = 1
    kinds: tuple[str, ...] = ()

    def __str__(self) -> str:
        kinds = " or ".join(self.kinds)
        return plural(self.minimum, f"{kinds} device" if kinds else "device")

    def met_by(self, devices: Devices) -> bool:
        """Whether enough devices are of an accepted kind. A software GPU is a ``gpu``, a logical GPU is not."""
        kinds = (*self.kinds, "software-gpu") if "gpu" in self.kinds else self.kinds
        return sum(not kinds or device.kind in kinds for device in devices) >= self.minimum


def describe(devices: Devices) -> str:
    """Describe the devices by number, kind and spec."""
    kinds = ", ".join(sorted({device.kind for device in devices}))
    return f"{plural(len(devices), f'{kinds} device')} from {devices.spec}"


def parse_needs(args: Sequence[object], kwargs: Mapping[str, object]) -> Needs:
    """Read the arguments of ``devices(min=1, kind=None)``; ``kind`` is a kind, or a sequence of kinds.

    Raise UsageError if an argument is unknown, or its value is not accepted.
    """
    written = ", ".join([*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())])

    def refused(why: str) -> UsageError:
        return UsageError(
            f"devices({written}): {why}; accepted: devices(min=N, kind=K) with N an integer of 1 or more "
            f"and K one of {', '.join(KINDS)}, or a list of them"
        )

    if args:
        raise refused("the marker takes keyword arguments only")
    if unknown := sorted(set(kwargs) - {"min", "kind"}):
        raise refused(f"unknown argument {', '.join(unknown)}")
    minimum = kwargs.get("min", 1)
    if not isinstance(minimum, int) or isinstance(minimum, bool) or minimum < 1:
        raise refused(f"min={minimum!r} is not a valid number of devices")
    kind = kwargs.get("kind")
    kinds = tuple(kind) if isinstance(kind, (list, tuple)) else () if kind is None else (kind,)
    if kind is not None and not kinds:
        raise refused(f"kind={kind!r} names no kind")
    for each in kinds:
        if each not in KINDS:
            raise refused(f"kind={each!r} is unknown")
    return Needs(minimum, tuple(str(each) for each in kinds))
