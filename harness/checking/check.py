"""What a check is: its description, and its context."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from harness.devices.device import Devices
from harness.plural import plural
from harness.records import Card, CheckResult, Exercised, RunRecord, Verdict

_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

#: Seed of everything that a check draws at random, so that two runs of a check see the same data.
DEFAULT_SEED = 20170717


class Level(str, Enum):
    """How much is exercised. Each level has the checks of the previous ones, with more examples."""

    QUICK = "quick"
    STANDARD = "standard"
    DEEP = "deep"

    def __str__(self) -> str:
        return self.value

    @property
    def factor(self) -> int:
        """How many times as many examples as ``quick`` a check generates."""
        return {Level.QUICK: 1, Level.STANDARD: 4, Level.DEEP: 16}[self]

    def includes(self, other: Level) -> bool:
        """Whether checks of the level ``other`` run at this level."""
        return other.factor <= self.factor


class Hardware(Protocol):
    """The part of a machine's interface that running checks needs; checks of hardware know the rest."""

    @property
    def cards(self) -> tuple[Card, ...]:
        """The cards to check, in TensorFlow's order."""

    @property
    def present(self) -> tuple[Card, ...]:
        """The cards that the driver reports, in its order, those that do not answer too; without one, ``cards``."""

    @property
    def unusable(self) -> tuple[Card, ...]:
        """The cards of ``present`` that should be among ``cards`` and cannot, each with its ``error``."""


class Driver(Enum):
    """What a check takes from the driver, and where a described machine has it from: its file, or a model."""

    VERSIONS = "versions and kernels", "static"
    LIBRARIES = "libraries", "static"
    CARDS = "the driver's list of cards", "static"
    PROCESSES = "memory of other processes", "static"
    STATE = "card state", "static"
    SENSORS = "sensors", "simulated"

    def __init__(self, what: str, source: str) -> None:
        self.what = what
        self.source = source

    def __str__(self) -> str:
        return f"{self.what} ({self.source})"


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The input of a check: the configured devices, the seed of its data, and how much to exercise."""

    devices: Devices
    seed: int = DEFAULT_SEED
    level: Level = Level.QUICK
    #: The hardware under the devices; ``None`` for a suite without hardware checks.
    machine: Hardware | None = None
    #: Earlier runs on this machine, to judge rates against.
    history: tuple[RunRecord, ...] = ()
    #: Whether the driver's answers are those of a described machine.
    described: bool = False

    @property
    def on_gpu(self) -> bool:
        """Whether there is a GPU among the devices. TensorFlow has no integer matrix product there."""
        return any(device.parsed.kind == "GPU" for device in self.devices)


def skipped(reason: str, next_step: str) -> CheckResult:
    """Return what a check says that cannot run here."""
    return CheckResult("", Verdict.SKIP, reason, next_step, Exercised())


def unknown(reason: str, next_step: str) -> CheckResult:
    """Return what a check says that has found out nothing."""
    return CheckResult("", Verdict.UNKNOWN, reason, next_step, Exercised())


@dataclass(frozen=True, slots=True)
class Check:
    """One test of a machine.

    ``id`` is short, stable and kebab-case; ``proves`` says in a sentence what a PASS means; ``minimum_devices`` is
    what it needs; ``typical_s`` is how long it takes on two cores, in seconds, at the level that it first belongs to.
    ``run`` imports TensorFlow itself, so that listing the checks loads nothing heavy. The id, the spec and the time are
    added to its result by :func:`harness.checking.execute.execute`.
    """

    id: str
    title: str
    proves: str
    minimum_devices: int
    typical_s: float
    run: Callable[[CheckContext], CheckResult]
    level: Level = Level.QUICK
    #: Whether it works on the machine (``CheckContext.machine``): ``--fake`` selects these.
    hardware: bool = False
    #: Whether it measures rates, or does what it can in a limited time, so that nothing may run beside it.
    timed: bool = False
    #: Whether all devices have to be of this process: not those of ``cores:N`` and of other hosts.
    one_process: bool = False
    #: What its verdict takes from the driver.
    reads: tuple[Driver, ...] = ()

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ValueError(f"check id={self.id!r}; accepted: lower-case words joined by hyphens, as in vector-add")
        if self.minimum_devices < 0:
            raise ValueError(f"check {self.id}: minimum_devices={self.minimum_devices!r}; accepted: 0 or more")

    def unmet(self, devices: Devices) -> tuple[str, str] | None:
        """Say why the check cannot run on ``devices``, and what to do; ``None`` if it can."""
        if not devices and self.minimum_devices:
            return f"not run: {devices.reason or 'no devices'}", "see the results of the checks 'software' and 'cards'"
        if len(devices) < self.minimum_devices:
            return (
                f"needs {plural(self.minimum_devices, 'device')}; configured: {len(devices)}",
                "request more devices, for example with --devices cpu:4",
            )
        if self.one_process and not all(device.parsed.in_this_process for device in devices):
            return (
                f"needs devices of a single process; configured: {devices.spec}",
                "run this check with --devices gpu or --devices cpu:N",
            )
        return None
