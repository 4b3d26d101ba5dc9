"""The record of a profile, stored as ``profile.json``."""

from __future__ import annotations

from dataclasses import dataclass

from harness.records import Fingerprint
from harness.speed.memory.record import Course

#: Version of the stored form of :class:`Profile`. A reader accepts this one and all earlier ones.
PROFILE_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """The activity of one device during the calls. Times are ns, summed over the calls.

    ``compute_ns``, ``transfer_ns``, ``collective_ns`` and ``input_ns`` may overlap; ``busy_ns`` is their union. The
    rest of the wall time is idle: ``host_ns`` while no device was busy (Python, op launches, tracing), ``waiting_ns``
    while another device was. A device that is not ``listed`` was not requested, such as the host that splits and joins.

    ``forward_ops`` and ``gradient_ops`` are counts of one call, from a recording.
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
    #: ``compute_ns`` if all calls were like the median one; ``None`` in profiles of earlier versions.
    typical_compute_ns: int | None = None
    #: If all calls were like the one in which it computed least; ``None`` in profiles of earlier versions.
    least_compute_ns: int | None = None


@dataclass(frozen=True, slots=True)
class HostTimes:
    """The activity of the calling process during the calls. Times in ns, summed over the calls."""

    #: While no device was busy.
    alone_ns: int
    #: Waiting for a batch, or making one, on the calling thread.
    input_ns: int
    #: In calls that traced a function again, until TensorFlow ran it.
    tracing_ns: int
    #: Converting Python and NumPy values to tensors.
    convert_ns: int
    #: Calls that traced a function again, and the names of those functions.
    calls_traced: int
    traced: tuple[str, ...]
    #: How often Python read the value of a tensor: ``numpy()``, ``float()``, ``if``, ``print``.
    reads: int


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of no gain that this profile shows. ``sentence`` has the cause, a figure, and what to do."""

    kind: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time of some calls went.

    ``wall_ns`` is the time of all calls, without the gaps between them. ``overlap_share`` is the share of it in which
    two or more of the listed devices computed at once, ``possible_overlap_share`` its maximum for this distribution of
    the work. Both are ``None`` for one device, or for hosts with different clocks. ``unattributed_ns`` is the time of
    ops of unknown device; it counts for no device. ``unattributed_overlap_ns`` is how much longer these ops took one by
    one than together, and ``unattributed_eager_ops`` how many of them Python started.
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
    #: ``None`` in profiles of earlier versions.
    unattributed_overlap_ns: int | None = None
    unattributed_eager_ops: int = 0
    #: Unknowns, a sentence each.
    unknown: tuple[str, ...] = ()
    #: Share of the pairs of products on different devices in which neither needs the other's result. ``None``: unknown.
    independent_share: float | None = None
    causes: tuple[Cause, ...] = ()
    #: Memory over time of the requested devices of which it is known; empty in profiles of earlier versions.
    memory: tuple[Course, ...] = ()
    #: A sentence on the devices whose memory is unknown; empty if there are none.
    memory_unknown: str = ""
    reason: str = ""
    fingerprint: Fingerprint | None = None
    schema_version: int = PROFILE_SCHEMA_VERSION

    @property
    def listed(self) -> tuple[DeviceTimes, ...]:
        """The times of the requested devices."""
        return tuple(each for each in self.times if each.listed)
