"""What the harness keeps: frozen, typed, versioned records. Units stand in the field names; missing is ``None``.

The records are plain dataclasses, so that making one costs nothing and importing this module loads no library.
``harness.report.storage`` writes and reads them, validated by Pydantic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

#: Version of the stored form of :class:`RunRecord`. A reader accepts this one and all earlier ones.
RUN_SCHEMA_VERSION = 1


class Verdict(str, Enum):
    """What a check or a verification says. UNKNOWN is not success: nothing was exercised, so nothing is proven."""

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
    """Join verdicts: FAIL, then UNKNOWN, then WARN, then PASS. Nothing, or nothing but SKIP, is UNKNOWN."""
    seen = set(verdicts)
    for verdict in (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN, Verdict.PASS):
        if verdict in seen:
            return verdict
    return Verdict.UNKNOWN


def exit_code(verdict: Verdict) -> ExitCode:
    """The exit code for an overall verdict: 0 for PASS and WARN, 1 for FAIL, 3 for everything else."""
    if verdict in (Verdict.PASS, Verdict.WARN):
        return ExitCode.SUCCESS
    return ExitCode.FAILURE if verdict is Verdict.FAIL else ExitCode.UNKNOWN


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    ``kind`` is one of :data:`FINDING_KINDS`; ``where`` says which output, gradient, variable or op; ``device`` is
    the full name of the device it concerns, or ``None``. ``severity`` is FAIL, or WARN where the values still hold.
    """

    kind: str
    where: str
    device: str | None
    expected: str
    found: str
    message: str
    severity: Verdict = Verdict.FAIL

    def __post_init__(self) -> None:
        if self.kind not in FINDING_KINDS:
            raise ValueError(f"kind={self.kind!r}; accepted: {', '.join(FINDING_KINDS)}")


FINDING_KINDS = (
    "structure",
    "shape",
    "dtype",
    "value",
    "gradient",
    "missing-gradient",
    "op-placement",
    "gradient-placement",
    "variable-placement",
    "unused-device",
    "transfer",
    "nondeterminism",
    "sync",
    "update-count",
    "input",
    "error",
)


@dataclass(frozen=True, slots=True)
class Exercised:
    """What a verdict rests on. All counts; ``devices`` are full device names on which ops were proven to run."""

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
        """Whether there is nothing that a verdict could rest on."""
        return not (self.values or self.gradients or self.ops)

    def __str__(self) -> str:
        return (
            f"{self.programs} program(s), {self.values} value(s), {self.gradients} gradient value(s), "
            f"{self.ops} op(s) and {self.gradient_ops} gradient op(s) proven on {len(self.devices)} device(s)"
        )


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU as the driver names it."""

    name: str
    uuid: str | None = None
    compute_capability: str | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The hardware and software that a result was obtained on. ``None`` is "not there" or "not known"."""

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
class CheckResult:
    """The verdict of one check on one device set."""

    check: str
    verdict: Verdict
    reason: str
    next_step: str
    exercised: Exercised
    findings: tuple[Finding, ...] = ()
    elapsed_s: float = 0.0
    spec: str = ""
    log: str | None = None
    #: Figures that belong to the result, by name with the unit in it, such as ``largest_error_ulp``.
    measured: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A whole run of ``harness validate``: written after each result, so that nothing is lost when it is cut short."""

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
    schema_version: int = RUN_SCHEMA_VERSION
