"""The task of a worker process that times a function of the user's on one device set; and the rounds of all of them."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic.dataclasses
from pydantic import TypeAdapter

from harness.errors import HarnessError, InvalidTarget
from harness.records import Fingerprint
from harness.runner.ask import ask
from harness.runner.job import Job, WorkerFiles
from harness.runner.limits import STARTUP_LIMIT_S
from harness.runner.messages import Answer, plain
from harness.runner.target import Target
from harness.runner.users_error import refused
from harness.speed.scaling.record import Mode, Point, Round

if TYPE_CHECKING:
    from harness.runner.worker import Send

#: What the user's function has to be.
ACCEPTED = "a function of devices that returns a callable without arguments; with --weak, of devices and scale"


@pydantic.dataclasses.dataclass(frozen=True)
class Arguments:
    """The task's arguments: a device spec, the function's file and name, the mode, and seconds to measure."""

    spec: str
    file: str
    function: str
    mode: Mode
    budget_s: float


@pydantic.dataclasses.dataclass(frozen=True)
class Measured:
    """What the process answers."""

    devices: int
    kind: str
    label: str
    faithful: bool
    times_ns: tuple[int, ...]
    fingerprint: Fingerprint


def run(arguments: dict[str, object], send: Send) -> None:
    """Configure the devices, let the user's function make the program for them, and time it."""
    from harness.devices.fingerprint import fingerprint
    from harness.devices.runtime import configure
    from harness.speed.label import kind_of, speed_label
    from harness.speed.scaling.measure import time_calls

    asked = TypeAdapter(Arguments).validate_python(arguments)
    target = Target(Path(asked.file), asked.function)
    devices = configure(asked.spec)
    scale = {"scale": len(devices)} if asked.mode == "weak" else {}
    try:
        program = _program(target, devices, scale)
        times = time_calls(program, budget_s=asked.budget_s)
    except (Exception, SystemExit) as error:  # the user's code may raise anything, and the parent must hear of it
        told = refused(target, error)
        if told is None:
            raise
        send(told)
        return
    label = speed_label(devices)
    measured = Measured(len(devices), kind_of(devices), label.text, label.gates, times, fingerprint(devices))
    answer = plain(measured)
    assert isinstance(answer, dict)
    send(Answer(answer))


def _program(target: Target, devices: Any, scale: dict[str, int]) -> Any:
    """The callable that the user's function makes for these devices."""
    program = target.load("devices", *scale)(devices=devices, **scale)
    if not callable(program):
        raise InvalidTarget(
            str(target), f"returned a {type(program).__name__}, which cannot be called", accepted=ACCEPTED
        )
    return program


@dataclass
class Rounds:
    """Times a function on several device sets, a fresh process for each in each round.

    The order within a round is drawn anew, so that what slows the machine down for a while slows no device set in
    particular. A device set that fails is left out from then on, and says why.
    """

    target: Target
    specs: Sequence[str]
    mode: Mode
    rounds: int
    budget_s: float
    logs: Path
    seed: int = 0
    limit_s: float = STARTUP_LIMIT_S
    points: dict[str, Point] = field(default_factory=dict)
    fingerprint: Fingerprint | None = None
    #: What each device set raised that failed.
    failures: dict[str, HarnessError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.points = {spec: Point(spec, None, None, None, None, ()) for spec in self.specs}

    def measure(self) -> Generator[tuple[int, Point], None, None]:
        """Measure; yields the round's number, from 0, and the device set's point after each process."""
        order = random.Random(self.seed)  # noqa: S311 - the order is no secret
        for number in range(self.rounds):
            specs = [spec for spec in self.specs if spec not in self.failures]
            order.shuffle(specs)
            for spec in specs:
                try:
                    self._measure(number, spec)
                except HarnessError as error:
                    self.failures[spec] = error
                    self.points[spec] = replace(self.points[spec], error=str(error))
                yield number, self.points[spec]

    def _measure(self, number: int, spec: str) -> None:
        arguments: dict[str, object] = {
            "spec": spec,
            "file": str(self.target.path),
            "function": self.target.function,
            "mode": self.mode,
            "budget_s": self.budget_s,
        }
        name = "".join(letter if letter.isalnum() else "-" for letter in spec)
        files = WorkerFiles.create(self.logs, f"scale-{name}-{number}")
        answer = ask(Job("harness.runner.scaling:run", arguments), files, limit_s=self.limit_s + self.budget_s)
        found = TypeAdapter(Measured).validate_python(answer)
        self.fingerprint = self.fingerprint or found.fingerprint
        self.points[spec] = replace(
            self.points[spec],
            devices=found.devices,
            kind=found.kind,
            label=found.label,
            faithful=found.faithful,
            rounds=(*self.points[spec].rounds, Round(number, found.times_ns)),
        )
