"""The machine that the hardware checks work on: a :class:`Machine`.

All calls are synchronous: when one returns, its work is done, and ``clock_s`` tells how long it took, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from harness.checking.check import Hardware
from harness.devices.described.models import PCIE_LANE_GBS

if TYPE_CHECKING:
    import numpy.typing as npt

    from harness.hardware.memory_settings.setting import MemorySeen, MemorySetting
    from harness.hardware.software.installed import Software

#: The memory of the host, where a card is expected.
HOST = "host"
#: Something in the memory of a card; only the machine that made it can read it.
Buffer = Any


class DeviceMemoryFull(Exception):
    """A buffer of ``size_bytes`` does not fit into the memory of ``device`` (or of the host)."""

    def __init__(self, device: str, size_bytes: int) -> None:
        self.device = device
        self.size_bytes = size_bytes
        super().__init__(f"{device} could not allocate {size_bytes} bytes")


class NoLibrary(Exception):
    """A library that a collective needs does not work; ``why`` is what TensorFlow says."""

    def __init__(self, library: str, why: str) -> None:
        self.library = library
        self.why = why
        super().__init__(f"{library}: {why}")


class NeverReturns(Exception):
    """A collective has not returned within ``limit_s`` seconds. What it runs on is not free after that."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        super().__init__(f"no return within {limit_s:g} s")


@dataclass(frozen=True, slots=True)
class Pattern:
    """Content of a buffer whose 64-bit word ``i`` is ``first + i * step`` modulo 2**64.

    It is generated again wherever it is compared, so the reference never travels the path under test.
    """

    first: int
    step: int = 0


@dataclass(frozen=True, slots=True)
class Mismatch:
    """How a buffer differs from its pattern: ``count`` 64-bit words, the index of the first one and its value."""

    count: int
    first_word: int | None = None
    found: int | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation: ``tensorflow`` takes tensors on a card, ``reference`` float64 or integer arrays of NumPy.

    ``dtype`` is that of the arguments, ``result_dtype`` that of the result, by NumPy's or ml_dtypes' name. ``flop`` is
    the number of floating-point operations of one run (of the best algorithm) and ``traffic_bytes`` how many bytes it
    must read and write; ``None`` if that is meaningless. ``unit`` is the unit of its rate. ``chained``: a repetition
    gets the result of the one before as its last argument.
    """

    name: str
    dtype: str
    result_dtype: str
    tensorflow: Callable[..., Any]
    reference: Callable[..., Any]
    flop: float | None = None
    traffic_bytes: float | None = None
    unit: Literal["GFLOP/s", "GB/s"] = "GFLOP/s"
    chained: bool = False

    @property
    def work(self) -> float:
        """The work of one run, in GFLOP or GB as ``unit`` says."""
        return ((self.flop if self.unit == "GFLOP/s" else self.traffic_bytes) or 0.0) / 1e9


#: Two cards by their labels, the source of a copy first.
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PairLink:
    """The active NVLinks between two cards, each of ``link_gbs`` one way, or the ``way`` over PCIe without one."""

    nvlinks: int = 0
    link_gbs: float | None = None
    way: str = "PCIe"

    @property
    def gbs(self) -> float | None:
        """What the NVLinks carry one way, in GB/s; ``None`` without one, or if their rate is unknown."""
        return self.nvlinks * self.link_gbs if self.nvlinks and self.link_gbs else None

    def __str__(self) -> str:
        if not self.nvlinks:
            return self.way
        several = self.nvlinks > 1
        rate = f" of {self.link_gbs:.4g} GB/s{' each' if several else ''}" if self.link_gbs else ""
        return f"{self.nvlinks} NVLink{'s' if several else ''}{rate}"


@dataclass(frozen=True, slots=True)
class Failure:
    """The error with which NVML answers a query: its number and its text."""

    code: int
    text: str


@dataclass(frozen=True, slots=True)
class Details:
    """What a card says beside its sensors: settings, counters of each NVLink, and which queries fail.

    ``links`` are counts by the number of the link and the kind of error; ``failed`` has an entry for each field of a
    reading that exists on the card and could not be read.
    """

    ecc_on: bool | None = None
    persistent: bool | None = None
    memory_clock_mhz: float | None = None
    memory_clock_max_mhz: float | None = None
    #: The power limit that the card was made for, in watts.
    power_default_w: float | None = None
    #: Whether it has no memory of its own, as a GPU on the chip of a processor.
    shares_memory: bool = False
    #: NVML's state of the fabric: 0 without one, 1 not started, 2 in progress, 3 completed.
    fabric: int | None = None
    links: Mapping[tuple[int, str], int] = field(default_factory=dict)
    failed: Mapping[str, Failure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """The sensors of a card at one moment; ``None`` for what it does not report.

    ``throttle_reasons`` are NVML's names, empty if there are none.
    """

    at_s: float
    clock_mhz: float | None = None
    clock_max_mhz: float | None = None
    temperature_c: float | None = None
    temperature_slowdown_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    utilization_percent: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    remapped_rows: int | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    nvlinks_active: int | None = None
    nvlinks_total: int | None = None
    nvlink_gbs: float | None = None
    #: Packets that NVLinks had to send again, and links that had to be trained again.
    nvlink_errors: int | None = None
    xid: tuple[int, ...] | None = None
    #: Whether a row waits for a reset to be remapped, and whether one could not be.
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    #: Pages retired for double-bit errors, and whether one waits for a reset: cards before the A100.
    retired_pages: int | None = None
    retired_pending: bool | None = None
    #: NVML's number of what the driver asks for; 0 for nothing.
    recovery_action: int | None = None
    details: Details = field(default_factory=Details, compare=False)

    @property
    def pcie_peak_gbs(self) -> float | None:
        """What the PCIe link can carry one way at best, in GB/s; ``None`` if unknown."""
        lane = PCIE_LANE_GBS.get(self.pcie_generation_max or 0)
        return lane * self.pcie_width_max if lane is not None and self.pcie_width_max else None


class Machine(Hardware, Protocol):
    """The cards of a machine and what can be done on them. A card is named by its label, the host by ``HOST``."""

    def clock_s(self) -> float:
        """Return the time of a monotonic clock, in seconds."""

    def wait_s(self, seconds: float) -> None:
        """Let time pass."""

    def software(self) -> Software:
        """Return what the driver, the libraries and TensorFlow report about themselves."""

    def reading(self, card: str) -> Reading:
        """Read the sensors of a card."""

    def free_bytes(self, card: str) -> int | None:
        """Return the memory that buffers on the card could get, in bytes; ``None`` if unknown."""

    def used_bytes(self, card: str) -> int | None:
        """Return the memory of the card (for the host: of this process) in use, in bytes; ``None`` if unknown."""

    def holders(self) -> Mapping[tuple[str, int], int | None]:
        """Return what processes hold of the cards' memory: MiB (``None``: unknown) by UUID and process id."""

    def pair_links(self) -> Mapping[tuple[str, str], PairLink]:
        """Return how ordered pairs of cards are joined, as far as known."""

    def memory_settings(self, trials: Sequence[tuple[str, MemorySetting]]) -> list[MemorySeen | str]:
        """Return what a separate process gets of a card with each setting, all at once; a text is an error.

        A process is given a GPU by its UUID, so a GPU without one cannot be tried.
        """

    def fill(self, card: str, size_bytes: int, pattern: Pattern) -> Buffer:
        """Make a buffer that holds ``pattern``, written by ops on the card. ``size_bytes`` is a multiple of 8.

        Raises:
            DeviceMemoryFull: there is not enough memory.
        """

    def mismatch(self, buffer: Buffer, pattern: Pattern) -> Mismatch:
        """Compare the buffer with ``pattern``, by ops on its own card."""

    def put(self, array: npt.NDArray[Any], card: str) -> Buffer:
        """Copy an array of the host to the card."""

    def fetch(self, buffer: Buffer) -> npt.NDArray[Any]:
        """Copy the buffer to an array of the host."""

    def move(self, buffer: Buffer, card: str, repeats: int = 1) -> Buffer:
        """Copy the buffer to another card ``repeats`` times, one after the other, and return the last copy."""

    def exchange(self, moves: Sequence[tuple[Buffer, str]], repeats: int = 1) -> list[Buffer]:
        """Make several copies to cards at once, each ``repeats`` times."""

    def run(self, operation: Operation, card: str, buffers: Sequence[Buffer], repeats: int = 1) -> Buffer:
        """Run the operation ``repeats`` times on buffers of the card and return the last result."""

    def at_once(self, jobs: Sequence[Job], meanwhile: Callable[[], None] | None = None) -> list[Ran]:
        """Run all jobs at once, and return their results in order; call ``meanwhile`` at least once as they run."""

    def collective(self, kind: str, algorithm: str, arrays: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Return what each card holds after a collective over all cards, to which each card contributes its array.

        ``kind`` is ``all-reduce``, ``all-gather``, ``reduce-scatter`` or ``broadcast``; ``algorithm`` one of
        :meth:`algorithms`.
        """

    def algorithms(self) -> tuple[str, ...]:
        """Return the available ones of ``nccl``, ``ring``, ``hierarchical-copy`` and ``reduce-to-one``."""


@dataclass(frozen=True, slots=True)
class Job:
    """An operation on buffers of one card, run ``repeats`` times in a row."""

    operation: Operation
    card: str
    buffers: tuple[Buffer, ...]
    repeats: int = 1


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a job and how long it took, in seconds."""

    result: Buffer
    elapsed_s: float
