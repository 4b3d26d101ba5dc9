"""The record of a scaling curve, stored as ``scale.json``."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Literal

from harness.records import Fingerprint
from harness.speed.record import Interval

#: Version of the stored form of :class:`ScaleRecord`. A reader accepts this one and all earlier ones.
SCALE_SCHEMA_VERSION = 1

#: ``strong``: the same work on more devices. ``weak``: work that grows with the number of devices.
Mode = Literal["strong", "weak"]


@dataclass(frozen=True, slots=True)
class Round:
    """The measurement of one process on one device set."""

    #: The number of the round, from 0.
    number: int
    #: The time of each call, in ns.
    times_ns: tuple[int, ...]

    @property
    def median_ns(self) -> float:
        """The median of the calls."""
        return float(median(self.times_ns))


@dataclass(frozen=True, slots=True)
class Point:
    """One device set: its measurements and results.

    ``speedup`` is the ratio of work per second to that on the smallest device set, ``efficiency`` is ``speedup``
    divided by the ratio of devices. Intervals are ``None`` with fewer than two rounds. ``error`` says why measuring
    ended early.
    """

    spec: str
    devices: int | None
    kind: str | None
    label: str | None
    #: Whether the devices are representative of speed.
    faithful: bool | None
    rounds: tuple[Round, ...]
    time_ns: float | None = None
    time_interval_ns: Interval | None = None
    speedup: float | None = None
    speedup_interval: Interval | None = None
    efficiency: float | None = None
    error: str | None = None
    #: Whether its outputs differ from those of the smallest device set: its times then do not count.
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class SerialFraction:
    """The share of the work that more devices do not speed up.

    Amdahl's law (strong scaling) relates it to the time on the smallest device set, Gustafson's (weak scaling) to the
    time on the larger ones. Below 0, the speedup exceeds the number of devices, such as when data then fits a cache;
    above 1, devices slow each other down. ``interval`` is ``None`` with as few points as parameters.
    """

    law: Literal["Amdahl", "Gustafson"]
    value: float
    interval: Interval | None
    #: The fitted time on the smallest device set, in ns, and its number of devices.
    time_ns: float
    base_devices: int
    #: The number of rounds, and of different device counts.
    rounds: int
    counts: int


@dataclass(frozen=True, slots=True)
class ScaleRecord:
    """A scaling curve. ``why_no_fit`` explains a missing serial fraction."""

    target: str
    mode: Mode
    rounds: int
    points: tuple[Point, ...]
    fit: SerialFraction | None
    why_no_fit: str | None
    complete: bool
    confidence: float
    #: The result of comparing the outputs, in words.
    outputs: str | None = None
    fingerprint: Fingerprint | None = None
    schema_version: int = SCALE_SCHEMA_VERSION
