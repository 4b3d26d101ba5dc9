"""The record of a measured speedup, stored in pytest-benchmark's JSON under ``extra_info``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, TypeAlias

from harness.errors import UsageError

#: Version of the stored form of :class:`SpeedupRecord`. A reader accepts this one and all earlier ones.
SPEEDUP_SCHEMA_VERSION = 1
#: The key in ``extra_info`` of a benchmark, and in ``machine_info`` of the file for the fingerprint.
EXTRA_INFO_KEY = "harness"

#: Why measuring ended: the interval was narrow enough, the time was up, or the most pairs were reached. ``disabled``:
#: nothing was measured, and the speedup is NaN.
Stopped = Literal["precise", "budget", "pairs", "disabled"]
#: The times in ns of both sides, pair by pair.
Times: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its two-sided confidence interval."""

    value: float
    lower: float
    upper: float
    confidence: float


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Peak memory of one device. ``source``: an allocator or a process."""

    device: str
    peak_bytes: int | None
    source: str


@dataclass(frozen=True, slots=True, repr=False)
class SpeedupRecord:
    """One speedup of ``parallel`` over ``single``, from pairs run in turn.

    ``single_ns[i]`` and ``parallel_ns[i]`` are the times of pair i, ``second_*`` those of the second measurement, made
    after a suspected loss. ``label`` describes the speedup; ``gates`` says whether the gate may judge it (logical
    devices that share one GPU or thread pool never gate).
    """

    devices: tuple[str, ...]
    kind: str
    label: str
    gates: bool
    speedup: Interval
    efficiency: float
    single_ns: tuple[int, ...]
    parallel_ns: tuple[int, ...]
    stopped: Stopped
    #: Requested relative half-width of the interval, and the time budget.
    wanted_half_width: float
    budget_s: float
    #: Seconds spent on measured pairs.
    elapsed_s: float
    second_single_ns: tuple[int, ...] = ()
    second_parallel_ns: tuple[int, ...] = ()
    #: Work of one call of either side, as the user states it, and rates from the median times.
    flops: float | None = None
    moved_bytes: float | None = None
    single_flops_per_s: float | None = None
    parallel_flops_per_s: float | None = None
    single_bytes_per_s: float | None = None
    parallel_bytes_per_s: float | None = None
    memory: tuple[DeviceMemory, ...] = ()
    #: Transfers of one traced call of ``parallel``, and the bytes of those of known size.
    transfers: int | None = None
    transferred_bytes: int | None = None
    #: Suspicions about the measurement, a sentence each.
    warnings: tuple[str, ...] = ()
    schema_version: int = SPEEDUP_SCHEMA_VERSION
    measured: dict[str, float] = field(default_factory=dict)

    @property
    def times(self) -> Times:
        """The times of ``single`` and of ``parallel``."""
        return self.single_ns, self.parallel_ns

    def __repr__(self) -> str:
        return f"<SpeedupRecord {self._sentence()}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the speedup with its interval, what it is one of, the times, and the warnings."""
        from harness.notebook import block, listed, table

        times = {"single": self.single_ns, "parallel": self.parallel_ns}
        rows = [(side, f"{median(each) / 1e6:,.3g}", f"{len(each):,}") for side, each in times.items() if each]
        shown = table(("", "median of a call, ms", "calls"), rows)
        return block("Speedup", [self._sentence()], shown, listed(self.warnings))

    def _sentence(self) -> str:
        found = self.speedup
        return f"{found.value:.2f} ({found.lower:.2f} to {found.upper:.2f}) on {self.label}"

    @property
    def second_times(self) -> Times:
        """The same of the second measurement."""
        return self.second_single_ns, self.second_parallel_ns


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one call of either side: floating-point operations, bytes read and written.

    A product of two n x n matrices is ``Work(flops=2 * n**3)``, an addition of two vectors of n float32 values
    ``Work(moved_bytes=12 * n)``. ``None``: unknown. Raise UsageError if a figure is not positive and finite, or none is
    given.
    """

    flops: float | None = None
    moved_bytes: float | None = None

    def __post_init__(self) -> None:
        given = {"flops": self.flops, "moved_bytes": self.moved_bytes}
        if all(figure is None for figure in given.values()):
            raise UsageError("Work() is empty; give flops=, moved_bytes= or both, or omit work=")
        for name, figure in given.items():
            if figure is not None and not (math.isfinite(figure) and figure > 0):
                raise UsageError(f"Work({name}={figure!r}); accepted: a positive number (per call of either side)")


def rate_per_s(amount: float | None, times_ns: Sequence[float]) -> float | None:
    """Compute ``amount`` per second at the median time of one call, in ns; ``None`` without an amount."""
    return None if amount is None else amount / (median(times_ns) * 1e-9)
