"""What a scaling curve is: plain frozen values, kept as ``scale.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.records import Fingerprint
from harness.speed.record import Interval

#: Version of the stored form of :class:`ScaleRecord`. A reader accepts this one and all earlier ones.
SCALE_SCHEMA_VERSION = 1

#: ``strong``: the same work on more devices. ``weak``: as much more work as there are more devices.
Mode = Literal["strong", "weak"]


@dataclass(frozen=True, slots=True)
class Round:
    """What one process measured on one device set."""

    #: Which round of all device sets it belongs to, from 0.
    number: int
    #: The time of each call, in ns.
    times_ns: tuple[int, ...]

    @property
    def median_ns(self) -> float:
        """The median of the calls: the one figure that this process gives."""
        from statistics import median

        return float(median(self.times_ns))


@dataclass(frozen=True, slots=True)
class Point:
    """One device set: what was measured on it, and what follows.

    ``speedup`` is how many times as much work is done per second as on the smallest device set, ``efficiency`` that
    divided by how many times as many devices there are. Intervals are ``None`` where fewer than two rounds are there.
    ``error`` says why nothing, or no more, was measured.
    """

    spec: str
    devices: int | None
    kind: str | None
    label: str | None
    #: Whether the label says that the devices are faithful for speed.
    faithful: bool | None
    rounds: tuple[Round, ...]
    time_ns: float | None = None
    time_interval_ns: Interval | None = None
    speedup: float | None = None
    speedup_interval: Interval | None = None
    efficiency: float | None = None
    error: str | None = None
    #: Whether it returns something else than the smallest device set: then its times count for nothing.
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class SerialFraction:
    """The share of the work that more devices do not speed up.

    By Amdahl's law (strong scaling) of the time on the smallest device set, by Gustafson's (weak scaling) of the time
    on the larger ones. Below 0 the devices are worth more than their number, as where the data then fits a
    cache; above 1 they slow each other down. ``interval`` is ``None`` where there are as few points as the law
    has parameters.
    """

    law: Literal["Amdahl", "Gustafson"]
    value: float
    interval: Interval | None
    #: The time on the smallest device set that belongs to it, in ns, and that device set's number of devices.
    time_ns: float
    base_devices: int
    #: How many rounds of how many different numbers of devices it comes from.
    rounds: int
    counts: int


@dataclass(frozen=True, slots=True)
class ScaleRecord:
    """A scaling curve. ``why_no_fit`` says why there is no serial fraction, where there is none."""

    target: str
    mode: Mode
    rounds: int
    points: tuple[Point, ...]
    fit: SerialFraction | None
    why_no_fit: str | None
    complete: bool
    confidence: float
    #: Whether all device sets return the same, in words; a point that does not has it as its ``error``.
    outputs: str | None = None
    fingerprint: Fingerprint | None = None
    schema_version: int = SCALE_SCHEMA_VERSION
