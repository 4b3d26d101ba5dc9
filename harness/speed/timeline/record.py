"""What a profile is: plain frozen values, kept as ``profile.json``."""

from __future__ import annotations

from dataclasses import dataclass

from harness.records import Fingerprint

#: Version of the stored form of :class:`Profile`. A reader accepts this one and all earlier ones.
PROFILE_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """What one device did while the calls ran. All times are ns, summed over the calls, and none counts twice.

    ``compute_ns``, ``transfer_ns``, ``collective_ns`` and ``input_ns`` are when it did something of that kind. Kinds
    may overlap; ``busy_ns`` is when it did anything. The rest of the wall time is idle: ``host_ns`` of it while no
    device at all was busy, so that all waited for the host (Python, starting ops, tracing), and ``waiting_ns`` while
    another device was. Unless ``listed``, it is no device that was asked for: the host that splits and joins for them.

    ``forward_ops`` and ``gradient_ops`` are counts of one call, from a recording of where ops ran.
    """

    device: str
    listed: bool
    compute_ns: int
    transfer_ns: int
    collective_ns: int
    input_ns: int
    busy_ns: int
    host_ns: int
    waiting_ns: int
    idle_share: float
    #: Ops, kernels and copies that ran on it, and those of them that Python started one by one.
    ops: int
    eager_ops: int
    forward_ops: int = 0
    gradient_ops: int = 0


@dataclass(frozen=True, slots=True)
class HostTimes:
    """What the calling process did while the calls ran. Times in ns, summed over the calls."""

    #: While no device was busy.
    alone_ns: int
    #: While a batch was waited for, or made: by an iterator, on the calling thread.
    input_ns: int
    #: In calls of functions that were traced anew, from the call's begin until TensorFlow ran it.
    tracing_ns: int
    #: In making tensors of Python and NumPy values.
    convert_ns: int
    #: Calls in which a function was traced anew, and the names of those functions.
    calls_traced: int
    traced: tuple[str, ...]
    #: How often Python read the value of a tensor: ``numpy()``, ``float()``, ``if``, ``print``.
    reads: int


@dataclass(frozen=True, slots=True)
class Cause:
    """A usual cause of no gain that this profile shows. ``sentence`` says the cause, the figure, and what to do."""

    kind: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time of some calls went.

    ``wall_ns`` is the time of all calls together; what lies between them is not looked at. ``overlap_share`` is the
    share of it in which two or more of the listed devices computed at once, ``possible_overlap_share`` what it could be
    if the same work were spread at best without moving any of it. Both are ``None`` where there is one device, or where
    the clocks of the devices' hosts are not the same one.

    ``unattributed_ns`` is the time of ops of which it is not known where they ran. It is in no device's times.
    """

    target: str
    spec: str
    devices: tuple[str, ...]
    calls: int
    wall_ns: int
    times: tuple[DeviceTimes, ...]
    host: HostTimes
    overlap_share: float | None
    possible_overlap_share: float | None
    unattributed_ns: int
    unattributed_ops: int
    #: What could not be measured, a sentence each.
    unknown: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    reason: str = ""
    fingerprint: Fingerprint | None = None
    schema_version: int = PROFILE_SCHEMA_VERSION

    @property
    def listed(self) -> tuple[DeviceTimes, ...]:
        """The times of the devices that were asked for."""
        return tuple(each for each in self.times if each.listed)
