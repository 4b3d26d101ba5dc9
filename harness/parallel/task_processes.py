"""Runs tasks: as many at once as there are devices, the rest in a queue, each in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.parallel.tasks import Script, Slot
from harness.records import Verdict
from harness.runner.job import Job, WorkerFiles
from harness.runner.limits import LAST_RESORT_S
from harness.runner.postmortem import innermost
from harness.runner.process import WorkerProcess

#: Version of the stored form of :class:`TasksRecord`. A reader accepts this one and all earlier ones.
TASKS_SCHEMA_VERSION = 1
#: How often running tasks are looked at, in seconds, and how often their GPU memory is.
#: So much of a log is read for its last line, and so much of that is quoted.
_LAST_BYTES, _LAST_LETTERS = 4096, 200
_TICK_S, _MEMORY_TICK_S = 0.05, 1.0

#: GPU memory by process: (UUID of the card, process id) to MiB; ``None``: the driver does not say how much.
Memory = Mapping[tuple[str, int], int | None]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """How one task went.

    ``exit_code`` is ``None`` where it was ended: by a signal, at its time limit, or with the whole run. ``message``
    says in a line what is wrong, and is empty where nothing is. ``log`` has all that it printed, ``stacks`` where it
    was.
    """

    number: int
    command: str
    device: str
    verdict: Verdict
    exit_code: int | None
    message: str
    started_s: float
    elapsed_s: float
    log: str
    stacks: str | None = None


@dataclass(frozen=True, slots=True)
class TasksRecord:
    """All tasks of one run; ``complete`` says whether none was left out."""

    spec: str
    devices: tuple[str, ...]
    commands: tuple[str, ...]
    results: tuple[TaskResult, ...]
    complete: bool
    schema_version: int = TASKS_SCHEMA_VERSION


@dataclass
class _Running:
    number: int
    slot: Slot
    process: WorkerProcess
    started_s: float
    foreign: dict[str, int] = field(default_factory=dict)


class Tasks:
    """The tasks of one run. :meth:`run` yields what happens; ``results`` grows as tasks end."""

    def __init__(
        self,
        scripts: Sequence[Script],
        slots: Sequence[Slot],
        logs: Path,
        *,
        limit_s: float | None = None,
        gpu_memory: Callable[[], Memory] | None = None,
    ) -> None:
        """``limit_s`` bounds each task; ``gpu_memory`` tells who uses which card's memory."""
        self.scripts = tuple(scripts)
        self.slots = tuple(slots)
        self.results: list[TaskResult] = []
        self._logs = logs
        self._limit_s = limit_s
        self._gpu_memory = gpu_memory
        self._running: list[_Running] = []
        self._began_s = time.monotonic()
        self._looked_s = 0.0

    def run(self) -> Generator[TaskResult | tuple[int, Slot], None, None]:
        """Run all of them; yields ``(number, slot)`` as a task starts and its result as it ends.

        Closing the generator ends what runs, and notes it as ended.
        """
        waiting = list(range(len(self.scripts)))
        free = list(self.slots)
        self._began_s = time.monotonic()
        try:
            while waiting or self._running:
                while waiting and free:
                    number = waiting.pop(0)
                    self._running.append(self._start(number, free.pop(0)))
                    yield number, self._running[-1].slot
                for task in list(self._running):
                    result = self._look(task)
                    if result is not None:
                        self._running.remove(task)
                        free.append(task.slot)
                        self.results.append(result)
                        yield result
                self._look_at_memory()
                time.sleep(_TICK_S)
        finally:
            for task in self._running:
                self.results.append(self._end(task, None, "stopped with the whole run"))
            self._running.clear()

    def running_pid(self, number: int) -> int:
        """The process id of a task that runs."""
        return next(task.process.pid for task in self._running if task.number == number)

    def _start(self, number: int, slot: Slot) -> _Running:
        script = self.scripts[number]
        files = WorkerFiles.create(self._logs, f"task-{number}")
        job = Job(
            "harness.parallel.task_process:run",
            {"script": str(script.path), "arguments": script.arguments, "slot": slot},
            limit_s=None if self._limit_s is None else self._limit_s + LAST_RESORT_S,
        )
        return _Running(number, slot, WorkerProcess(job, files), time.monotonic())

    def _look(self, task: _Running) -> TaskResult | None:
        how = task.process.ended()
        if how is not None:
            code = int(how.rpartition(" ")[2]) if how.startswith("exit code ") else None
            return self._end(task, code, "" if code == 0 else _with_last_line(how, task.process.files.log))
        if self._limit_s is not None and time.monotonic() - task.started_s > self._limit_s:
            task.process.ask_for_stacks()
            return self._end(task, None, f"took longer than {self._limit_s:g} s and was ended")
        return None

    def _end(self, task: _Running, code: int | None, message: str) -> TaskResult:
        task.process.end()
        files = task.process.files
        files.discard_empty()
        place = innermost(files.stacks.read_text(errors="replace")) if files.stacks.exists() else None
        if place and message:
            message = f"{message}, at {place}"
        taken = [f"{mib} MiB of {uuid}" for uuid, mib in task.foreign.items()]
        if taken:
            message = "; ".join(filter(None, [message, f"used a GPU that is not this task's: {', '.join(taken)}"]))
        return TaskResult(
            number=task.number,
            command=str(self.scripts[task.number]),
            device=task.slot.name,
            verdict=Verdict.FAIL if message else Verdict.PASS,
            exit_code=code,
            message=message,
            started_s=task.started_s - self._began_s,
            elapsed_s=time.monotonic() - task.started_s,
            log=str(files.log),
            stacks=str(files.stacks) if files.stacks.exists() else None,
        )

    def _look_at_memory(self) -> None:
        """Note the cards, other than its own, whose memory a task uses. Those of its children count as its own."""
        now = time.monotonic()
        if self._gpu_memory is None or now - self._looked_s < _MEMORY_TICK_S:
            return
        self._looked_s = now
        used = self._gpu_memory()
        for task in self._running:
            family = _family(task.process.pid)
            for (uuid, pid), mib in used.items():
                if pid in family and uuid != task.slot.uuid:
                    task.foreign[uuid] = max(task.foreign.get(uuid, 0), mib or 0)


def _with_last_line(how: str, log: Path) -> str:
    """How a task ended, and the last thing that it printed: mostly the error that it ended with."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LAST_BYTES))
        printed = file.read().decode(errors="replace").splitlines()
    last = next((" ".join(line.split()) for line in reversed(printed) if line.strip()), "")
    shown = last if len(last) <= _LAST_LETTERS else f"{last[:_LAST_LETTERS]}…"
    return f"{how}: {shown}" if shown else how


def _family(pid: int) -> set[int]:
    """A process and all that it started, as far as they live."""
    import psutil

    try:
        process = psutil.Process(pid)
        return {pid, *(child.pid for child in process.children(recursive=True))}
    except psutil.NoSuchProcess:
        return {pid}
