"""The record of a profile, stored as ``profile.json``."""

from __future__ import annotations

from dataclasses import dataclass

from harness.devices.name import DeviceName
from harness.plural import plural
from harness.records import Fingerprint
from harness.speed.memory.record import Course

#: Version of the stored form of :class:`Profile`. A reader accepts this one and all earlier ones.
PROFILE_SCHEMA_VERSION = 1
#: What a device spends its time on, as in :class:`DeviceTimes`.
SPENT = ("compute", "transfer", "collective", "input", "host", "waiting")
#: The columns of :meth:`DeviceTimes.cells`.
COLUMNS = ("device", *SPENT, "idle", "ops", "forward", "gradient")
#: Up to this share of the time that is attributed to no device, sentences about devices are true.
_UNATTRIBUTED = 0.2


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

    def cells(self) -> list[str]:
        """The row of a table: the device, what it spends its time on (:data:`SPENT`) in ms, and counts of ops."""
        name = DeviceName.parse(self.device).short
        # Ops ran here, and when is unknown: nothing is known of the rest of the time either.
        unknown = not self.ops and bool(self.forward_ops or self.gradient_ops)
        spent = [f"{getattr(self, f'{each}_ns') / 1e6:.2f}" for each in SPENT]
        return [
            name if self.listed else f"({name})",
            *(["UNKNOWN", *[""] * (len(SPENT) - 1)] if unknown else spent),
            "" if unknown else f"{self.idle_share:.1%}",
            "" if unknown else str(self.ops),
            str(self.forward_ops),
            str(self.gradient_ops),
        ]


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
    """A cause of no gain that this profile shows. ``sentence`` has the cause, a figure, and what to do.

    ``saved_ns`` is what all calls would take less without it; ``None`` where that is unknown.
    """

    kind: str
    sentence: str
    saved_ns: float | None = None


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
    #: Whether a call is one graph in which no product comes after one on another device, for whatever reason.
    apart: bool = False
    causes: tuple[Cause, ...] = ()
    #: Memory over time of the requested devices of which it is known; empty in profiles of earlier versions.
    memory: tuple[Course, ...] = ()
    #: A sentence on the devices whose memory is unknown; empty if there are none.
    memory_unknown: str = ""
    reason: str = ""
    fingerprint: Fingerprint | None = None
    schema_version: int = PROFILE_SCHEMA_VERSION

    def __repr__(self) -> str:
        return f"<Profile of {self.summary()[0]}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: what was found, the time of each device in ms, and what its memory held."""
        from harness.notebook import block, small, table

        times = table(COLUMNS, [each.cells() for each in self.times])
        caption = small(f"ms, sum of {plural(self.calls, 'call')}")
        memory = "".join(course._repr_html_() for course in self.memory)
        return block("Profile", self.summary(), times, caption, memory)

    @property
    def listed(self) -> tuple[DeviceTimes, ...]:
        """The times of the requested devices."""
        return tuple(each for each in self.times if each.listed)

    @property
    def too_little_known(self) -> bool:
        """Whether the device of too much of the time is unknown for a sentence about devices."""
        known = sum(each.busy_ns for each in self.times)
        return self.unattributed_ns > _UNATTRIBUTED * (known + self.unattributed_ns)

    def summary(self) -> list[str]:
        """What the table of the devices leaves out, a line each: the times of all, what is unknown, and the causes."""
        host, wall = self.host, self.wall_ns
        each_ms, reads = wall / self.calls / 1e6, host.reads / self.calls
        lines = [
            f"{self.target} on {self.spec}: {plural(self.calls, 'call')}, {each_ms:.2f} ms each",
            f"overlap: {self._overlap()}",
            (
                f"host: all devices are idle for {_share(host.alone_ns, wall)} of the time; converting Python values "
                f"to tensors takes {_share(host.convert_ns, wall)}, waiting for batches {_share(host.input_ns, wall)}, "
                f"tracing {_share(host.tracing_ns, wall)}; {reads:g} value{'' if reads == 1 else 's'} read by Python "
                "per call"
            ),
        ]
        if "software GPU" in self.reason:
            lines.append(f"devices: {self.reason}")
        lines += [f"UNKNOWN: {each}" for each in self.unknown]
        none = "None of the usual causes of a missing speedup was found."
        if self.too_little_known:
            none = "Causes of a missing speedup: UNKNOWN, because the device of too much of the time is unknown."
        lines += [f"- {cause.sentence}" for cause in self.causes] or [none]
        return lines

    def _overlap(self) -> str:
        if self.overlap_share is None or self.possible_overlap_share is None or self.too_little_known:
            return "one device: nothing to overlap" if len(self.devices) == 1 else "UNKNOWN"
        return (
            f"two or more devices compute at once {self.overlap_share:.1%} of the time; this distribution of the work "
            f"allows {self.possible_overlap_share:.1%}"
        )


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0.0%"
