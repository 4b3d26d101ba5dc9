"""Times a user's function on several device sets: the task of a worker process, and the rounds of all processes."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pydantic.dataclasses
from pydantic import TypeAdapter

from harness._tensorflow import count_traces
from harness.devices.fingerprint import fingerprint
from harness.devices.runtime import configure
from harness.errors import HarnessError, InvalidTarget, OutputsDiffer
from harness.lazy import tf
from harness.records import Fingerprint
from harness.runner.ask import ask
from harness.runner.job import Job, WorkerFiles, typed_task
from harness.runner.limits import STARTUP_LIMIT_S
from harness.runner.messages import Answer
from harness.runner.target import Target
from harness.runner.users_error import users_code
from harness.runner.worker import Send
from harness.speed.label import kind_of, speed_label
from harness.speed.measure import quiet
from harness.speed.outputs import MOST_BYTES, arrays_of, difference, load_outputs, save_outputs
from harness.speed.scaling.record import Mode, Point, Round
from harness.speed.synchronise import synchronise, warm_up

#: The accepted form of the user's function.
ACCEPTED = "where FUNCTION(devices) returns a callable without arguments (with --weak, FUNCTION(devices, scale))"
#: A median of fewer calls is not reliable.
FEWEST_CALLS = 5
_MOST_CALLS = 10_000


@pydantic.dataclasses.dataclass(frozen=True)
class MeasuredSet:
    """The answer of the process."""

    devices: int
    kind: str
    label: str
    faithful: bool
    times_ns: tuple[int, ...]
    fingerprint: Fingerprint
    #: Whether the outputs were written; they may be too large.
    outputs: bool


@typed_task
def run(send: Send, spec: str, file: Path, function: str, mode: Mode, budget_s: float, outputs: Path) -> None:
    """Let the user's function make the program for the devices of ``spec``, call it once, and time it.

    The outputs of the first call are written to the file ``outputs``. All random numbers start from the same seed in
    each process, so that the outputs can be compared.
    """
    target = Target(file, function)
    devices = configure(spec)
    scale = {"scale": len(devices)} if mode == "weak" else {}
    tf.keras.utils.set_random_seed(0)
    with users_code(target):
        program = target.load("devices", *scale, accepted=ACCEPTED)(devices=devices, **scale)
        if not callable(program):
            why = f"returned an object of type {type(program).__name__}, which cannot be called"
            raise InvalidTarget(str(target), why, accepted=ACCEPTED)
        kept = save_outputs(arrays_of(program()), outputs)
        times = time_calls(program, budget_s=budget_s)
    label = speed_label(devices)
    measured = MeasuredSet(len(devices), kind_of(devices), label.text, label.gates, times, fingerprint(devices), kept)
    send(Answer(asdict(measured)))


@dataclass
class Rounds:
    """Times a function on several device sets, a fresh process for each in each round.

    The order within a round is random, so that a slow phase of the machine does not hit one device set. A device set
    that fails is left out from then on.
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
    #: The errors of the device sets that failed.
    failures: dict[str, HarnessError] = field(default_factory=dict)
    #: Files with the outputs on each device set, and whether any were too large.
    _outputs: dict[str, list[Path]] = field(default_factory=dict)
    _too_large: bool = False

    def __post_init__(self) -> None:
        self.points = {spec: Point(spec, None, None, None, None, ()) for spec in self.specs}

    def measure(self) -> Generator[tuple[int, Point], None, None]:
        """Measure; yields the number of the round, from 0, and the point of the device set after each process."""
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

    def compare(self) -> str:
        """Compare the outputs of the processes, and describe the result.

        A device set fails if its outputs differ from those of the smallest one.
        """
        try:
            return self._compared()
        finally:
            for path in itertools.chain.from_iterable(self._outputs.values()):
                path.unlink(missing_ok=True)

    def _compared(self) -> str:
        if self.mode == "weak":
            return "outputs not compared: each device set does different work"
        if self._too_large:
            return f"outputs not compared: they are larger than {MOST_BYTES // 2**20} MiB"
        first = min(self._outputs, key=lambda spec: self.points[spec].devices or 0, default=None)
        if first is None or len(self._outputs) < 2:
            return "outputs not compared: fewer than two device sets returned outputs"
        want, *again = map(load_outputs, self._outputs[first])
        if not any(array is not None and array.size for array in want.values()):
            return "outputs not compared: there are none; return the computed tensors"
        if any(difference(want, other) for other in again):
            return f"outputs not compared: on {first} they differ between processes"
        for spec in self._outputs.keys() - {first}:
            if differs := difference(want, load_outputs(self._outputs[spec][0])):
                why = f"they differ from those of {first} ({differs}; `single` is {first}, `parallel` is {spec})"
                error = OutputsDiffer("outputs", why)
                self.failures[spec] = error
                self.points[spec] = replace(self.points[spec], error=str(error), wrong=True)
        right = len(self._outputs) - sum(self.points[spec].wrong for spec in self._outputs)
        return f"{right} of {len(self._outputs)} device sets return the same outputs"

    def _measure(self, number: int, spec: str) -> None:
        name = "".join(letter if letter.isalnum() else "-" for letter in spec)
        outputs = (self.logs / f"outputs-{name}-{number}.pickle").absolute()
        arguments: dict[str, object] = {
            "spec": spec,
            "file": str(self.target.path),
            "function": self.target.function,
            "mode": self.mode,
            "budget_s": self.budget_s,
            "outputs": str(outputs),
        }
        files = WorkerFiles.create(self.logs, f"scale-{name}-{number}")
        answer = ask(Job("harness.speed.scaling.processes:run", arguments), files, limit_s=self.limit_s + self.budget_s)
        found = TypeAdapter(MeasuredSet).validate_python(answer)
        self.fingerprint = self.fingerprint or found.fingerprint
        if found.outputs:
            self._outputs.setdefault(spec, []).append(outputs)
        self._too_large = self._too_large or not found.outputs
        rounds = (*self.points[spec].rounds, Round(number, found.times_ns))
        self.points[spec] = Point(spec, found.devices, found.kind, found.label, found.faithful, rounds)


def time_calls(program: Callable[[], Any], *, budget_s: float) -> tuple[int, ...]:
    """Warm ``program`` up, call it for about ``budget_s`` seconds, at least five times, and return each time in ns.

    A time ends when all devices are done and each output can be read.
    """
    clock = time.perf_counter_ns
    with count_traces() as traces, quiet() as collect:
        warm_up(traces, program)
        times: list[int] = []
        start = clock()
        while len(times) < FEWEST_CALLS or (len(times) < _MOST_CALLS and clock() - start < budget_s * 1e9):
            begin = clock()
            synchronise(program())
            times.append(clock() - begin)
            collect()
    return tuple(times)
