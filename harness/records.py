"""Records that the harness keeps: frozen, typed and versioned. Units are in the field names; ``None`` means missing.

They are plain dataclasses, so importing this module loads no library. ``harness.report.storage`` reads and writes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from harness.finding_kinds import KINDS
from harness.notebook import ShownRun
from harness.plural import plural

#: Version of the stored form of :class:`RunRecord`. Readers accept this version and all earlier ones.
RUN_SCHEMA_VERSION = 2


class Verdict(str, Enum):
    """Result of a check or a verification. UNKNOWN is not success: nothing was exercised, so nothing is proven."""

    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"
    SKIP = "SKIP"
    UNKNOWN = "UNKNOWN"

    def __str__(self) -> str:
        return self.value


class ExitCode(int, Enum):
    """Exit codes of the command line."""

    SUCCESS = 0
    FAILURE = 1
    USAGE = 2
    UNKNOWN = 3


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the first of FAIL, UNKNOWN, WARN and PASS that occurs; UNKNOWN if none does."""
    seen = set(verdicts)
    for verdict in (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN, Verdict.PASS):
        if verdict in seen:
            return verdict
    return Verdict.UNKNOWN


def exit_code(verdict: Verdict) -> ExitCode:
    """Return the exit code of a verdict: 0 for PASS and WARN, 1 for FAIL, 3 otherwise."""
    if verdict in (Verdict.PASS, Verdict.WARN):
        return ExitCode.SUCCESS
    return ExitCode.FAILURE if verdict is Verdict.FAIL else ExitCode.UNKNOWN


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem that was found.

    ``kind`` is a name in :mod:`harness.finding_kinds`. ``where`` names the output, gradient, variable or op for people.
    ``device`` is the full name of the device concerned, if any. ``severity`` is FAIL, or WARN if the values are right.
    """

    kind: str
    where: str
    device: str | None
    expected: str
    found: str
    message: str
    severity: Verdict = Verdict.FAIL
    #: What to do about it.
    next_step: str = ""
    #: ``eager`` or ``graph``, for a finding about a program; ``eager, graph`` if both show it. Of a training, its loop.
    mode: str = ""
    #: The operation, algorithm or index concerned, for programs to compare: ``matmul float32``, ``ring``, ``index 1``.
    subject: str = ""
    #: Labels of the two devices of a copy, source first.
    pair: tuple[str, str] | None = None
    #: Full names of the devices that work belongs on, or that are idle, where the finding says so.
    wanted: tuple[str, ...] = ()
    #: One line for each result that differs because of it, in each mode.
    follows: tuple[str, ...] = ()
    #: Whether one occurrence is enough: the finding stays a FAIL even if a second pass does not show it again.
    lasting: bool = False
    #: Full names of the devices that show the same, where one cause outside of them explains all. ``device`` is none.
    devices: tuple[str, ...] = ()
    #: Code of the cause of a result that differs, such as ``C101``, if one is known. ``harness explain`` takes it.
    cause: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r}; accepted: {', '.join(KINDS)}")

    @property
    def code(self) -> str:
        """The stable code of the kind, which ``harness explain`` takes."""
        return KINDS[self.kind].code

    @property
    def place(self) -> str:
        """``where``, with the mode if there is one."""
        return f"{self.where} ({self.mode})" if self.mode else self.where


@dataclass(frozen=True, slots=True)
class Exercised:
    """What a verdict is based on: counts, and the full names of the devices on which ops were proven to run."""

    programs: int = 0
    values: int = 0
    gradients: int = 0
    ops: int = 0
    gradient_ops: int = 0
    devices: tuple[str, ...] = ()

    def __add__(self, other: Exercised) -> Exercised:
        return Exercised(
            self.programs + other.programs,
            self.values + other.values,
            self.gradients + other.gradients,
            self.ops + other.ops,
            self.gradient_ops + other.gradient_ops,
            tuple(sorted({*self.devices, *other.devices})),
        )

    @property
    def nothing(self) -> bool:
        """Whether there is no evidence for a verdict."""
        return not (self.values or self.gradients or self.ops)

    def __str__(self) -> str:
        counts = {
            "program": self.programs,
            "value": self.values,
            "gradient value": self.gradients,
            "op": self.ops,
            "gradient op": self.gradient_ops,
        }
        done = ", ".join(plural(count, noun) for noun, count in counts.items() if count)
        if not done:
            return "nothing"
        return f"{done} on {plural(len(self.devices), 'device')}" if self.devices else done


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU as the driver reports it."""

    name: str
    uuid: str | None = None
    compute_capability: str | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The hardware and software that produced a result. ``None`` means absent or unknown."""

    tensorflow: str
    keras: str | None
    numpy: str
    python: str
    onednn: bool | None
    cpu_model: str | None
    cores_logical: int | None
    cores_physical: int | None
    memory_mib: int | None
    operating_system: str
    gpus: tuple[GpuFacts, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    spec: str | None = None
    devices: tuple[str, ...] = ()
    intra_op_threads: int | None = None
    inter_op_threads: int | None = None
    tf32: bool | None = None
    deterministic_ops: bool | None = None
    soft_placement: bool | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU or CPU device of a machine. Reports call it by its ``label``, such as ``GPU:1`` or ``worker/1/GPU:0``.

    ``device`` is TensorFlow's full name, ``pci`` the bus id ``0000:3B:00.0``, ``numa_node`` the node it is attached to.
    """

    label: str
    name: str
    device: str | None = None
    index: int | None = None
    uuid: str | None = None
    pci: str | None = None
    compute_capability: str | None = None
    memory_bytes: int | None = None
    numa_node: int | None = None
    #: The profile in ``profiles/hardware`` that it is judged against; ``None``: against the other devices.
    profile: str | None = None
    #: ``CPU``, ``GPU`` or ``software GPU``. Taken from the label if left out, as in older records.
    kind: str = ""
    #: What it is where it is no whole card: ``logical GPU``, ``MIG slice`` or ``software GPU``. Its rates are reported,
    #: and not judged.
    part: str | None = None
    serial: str | None = None
    vbios: str | None = None
    board_part: str | None = None
    #: The name of its slot, as the board's firmware tells the kernel.
    slot: str | None = None
    #: Memory that was free when the run began, in bytes.
    free_bytes: int | None = None
    #: Whether only one process at a time may use it.
    exclusive: bool = False
    #: Why the driver gets no answer from it.
    error: str | None = None

    def __post_init__(self) -> None:
        if not self.kind:
            kind = self.label.rpartition("/")[2].partition(":")[0]
            # The driver's GPUs that TensorFlow does not see are labelled nvml:3.
            object.__setattr__(self, "kind", "GPU" if kind == "nvml" else kind)

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU, physical or logical, on this host or another. A software GPU is none."""
        return self.kind == "GPU"

    @property
    def on_host(self) -> bool:
        """Whether the host's processor does its work: a CPU, or a software GPU, also one of a described machine."""
        return not self.is_gpu or self.part == "software GPU"

    @property
    def shares_threads(self) -> bool:
        """Whether it is a logical CPU or a software GPU of this process. They share cores: their rates say nothing."""
        return not self.is_gpu and "/" not in self.label


@dataclass(frozen=True, slots=True)
class Host:
    """The machine of a run. ``None`` means unknown, or left out on request (``--anonymous``).

    ``name`` is what its scheduler calls it, or its host name. ``rack`` is where it stands, from ``HARNESS_RACK``.
    """

    name: str | None = None
    #: Of the chassis; the kernel shows it to root.
    serial: str | None = None
    rack: str | None = None
    #: Changes when the machine is restarted.
    boot: str | None = None


@dataclass(frozen=True, slots=True)
class Cohort:
    """What machines that may be compared have in common. Each text lists every value that occurs on the machine."""

    card: str
    driver: str
    vbios: str
    harness: str


class Quantity(str, Enum):
    """What a figure measures, which decides how it is judged: the rate of an operation, the bandwidth of copies, …"""

    RATE = "rate"
    BANDWIDTH = "bandwidth"
    LATENCY = "latency"
    LINK = "link"
    POWER = "power"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure: ``name`` such as ``matmul float32``, ``unit`` such as ``GFLOP/s``, ``GB/s`` (1e9) or ``us``.

    ``device`` and ``peer`` are labels of cards; a copy goes from ``device`` to ``peer``, and either may be ``host``.
    ``expected`` is the value it was judged against and ``expected_from`` its source.
    """

    name: str
    value: float
    unit: str
    device: str | None = None
    peer: str | None = None
    size_bytes: int | None = None
    expected: float | None = None
    expected_from: str | None = None
    #: ``None`` in records written before it existed.
    quantity: Quantity | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """A sensor over time: ``name`` such as ``temperature``, ``unit`` such as ``C``; ``at_s`` starts at 0."""

    name: str
    unit: str
    device: str
    at_s: tuple[float, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class PlacedOp:
    """One op of a program, proven to have run on ``device``; ``order`` counts from 0 in order of execution."""

    order: int
    name: str
    type: str
    device: str
    role: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the ops of one program ran: the first of them, and how many there were in ``total``."""

    program: str
    ops: tuple[PlacedOp, ...]
    total: int


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Verdict of one check on one device set."""

    check: str
    verdict: Verdict
    reason: str
    next_step: str
    exercised: Exercised
    findings: tuple[Finding, ...] = ()
    elapsed_s: float = 0.0
    spec: str = ""
    log: str | None = None
    #: Figures by name, with the unit in the name, such as ``largest_error_ulp``.
    measured: dict[str, float] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()
    series: tuple[Series, ...] = ()
    placements: tuple[Placement, ...] = ()
    #: What was exercised beyond the counts of ``exercised``, such as ``GPU:0: tested 7.2 GB of 8.0 GB free (90%)``.
    scope: tuple[str, ...] = ()
    #: Command line that runs this check again.
    replay: str | None = None
    #: The entry of ``--known-failures`` that accepts this result, which is then WARN.
    accepted_as: str | None = None


@dataclass(frozen=True, slots=True)
class CardVerdict:
    """What to do with one GPU, or with the link between two: ``replace``, ``reseat``, ``improve its cooling``.

    ``labels`` are those of the devices on the card, or of the two ends of a link, the source first. ``reasons`` are the
    messages of its two strongest findings, of ``findings`` in all. ``next_step`` is that of the finding that decides.
    """

    labels: tuple[str, ...]
    action: str
    severity: Verdict
    reasons: tuple[str, ...]
    findings: int
    #: Whether it is about the way between two cards.
    pair: bool = False
    #: Whether all these cards show the same, and the cause is outside of them: none of them is to blame.
    shared: bool = False
    next_step: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class RunRecord(ShownRun):
    """One run of ``harness validate``, written after each result so that an interrupted run loses nothing."""

    started_at: str
    harness: str
    command: tuple[str, ...]
    spec: str
    verdict: Verdict
    exit_code: int
    complete: bool
    results: tuple[CheckResult, ...]
    planned: tuple[str, ...] = ()
    spec_reason: str = ""
    fingerprint: Fingerprint | None = None
    elapsed_s: float = 0.0
    level: str = "quick"
    cards: tuple[Card, ...] = ()
    #: Whether the machine was described in a file (``--fake``) instead of being real.
    described: bool = False
    #: Entries of ``--known-failures`` that no longer occur.
    passes_again: tuple[str, ...] = ()
    #: What to do with each GPU that has findings, the worst first.
    card_verdicts: tuple[CardVerdict, ...] = ()
    #: ``None`` in records written before it existed.
    host: Host | None = None
    cohort: Cohort | None = None
    schema_version: int = RUN_SCHEMA_VERSION
