"""Processes that take steps together when they are told to: started, waited for with a limit, and ended in any case."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dense_processes
import numpy as np
import psutil

from harness.errors import WorkerFailed
from harness.runner.ask import free_addresses, port_taken
from harness.runner.job import Job, WorkerFiles
from harness.runner.limits import LAST_RESORT_S, STARTUP_LIMIT_S
from harness.runner.messages import Answer
from harness.runner.postmortem import remains
from harness.runner.process import TimeLimitReached, WorkerProcess

#: A step takes a fraction of a second. One that hangs ends the benchmark after so many seconds.
STEP_LIMIT_S = 120.0
#: How often it is seen meanwhile whether another process of the group has ended, in seconds.
_TURN_S = 1.0
#: How often a group is started anew whose ports somebody else had taken before it did.
_ATTEMPTS = 3


@dataclass(frozen=True)
class Member:
    """A process of a group: a function of ``dense_processes`` and its arguments. ``steps``: whether it takes steps."""

    name: str
    task: str
    arguments: dict[str, object]
    steps: bool = True


class Group:
    """Processes that run."""

    def __init__(self, members: Sequence[Member], folder: Path, stack: ExitStack) -> None:
        results, sizes = folder / "results.npy", dense_processes.sizes()
        np.save(results, np.full(sum(sizes), np.nan, np.float32))
        self._shared = np.load(results, mmap_mode="r+")
        self._splits = np.cumsum(sizes)[:-1]
        self._members = list(members)
        self._running: list[WorkerProcess] = []
        self._pipes: dict[int, int] = {}
        for number, member in enumerate(members):
            steps = folder / f"{member.name}.steps"
            if member.steps:
                os.mkfifo(steps)
                # For both: so it opens before the other end does, and a process that has ended is no broken pipe.
                self._pipes[number] = os.open(steps, os.O_RDWR)
                stack.callback(os.close, self._pipes[number])
            job = Job(
                f"{dense_processes.__name__}:{member.task}",
                {**member.arguments, "steps": str(steps), "results": str(results)},
                limit_s=STARTUP_LIMIT_S + LAST_RESORT_S if member.steps else None,
            )
            self._running.append(stack.enter_context(WorkerProcess(job, WorkerFiles.create(folder, member.name))))
        deadline = time.monotonic() + STARTUP_LIMIT_S
        #: What each process said of itself when it was ready, by the members' names.
        self.told = {member.name: self._answer(number, deadline) for number, member in enumerate(members)}

    def busy_s(self) -> dict[str, float]:
        """The processor time that each process has taken so far, in seconds, by the members' names."""
        taken = [psutil.Process(worker.pid).cpu_times() for worker in self._running]
        return {member.name: each.user + each.system for member, each in zip(self._members, taken, strict=True)}

    def step(self) -> list[Any]:
        """One step of all: the loss, float32 ``[1]``, and the gradients, float32 ``[units * units]`` each.

        Raises:
            WorkerFailed: a process has ended, or took longer than ``STEP_LIMIT_S``.
        """
        deadline = time.monotonic() + STEP_LIMIT_S
        for pipe in self._pipes.values():
            os.write(pipe, b".")
        for number in self._pipes:
            self._answer(number, deadline)
        taken = np.array(self._shared)
        # Whoever leaves its part out in the next step leaves NaN: no result of an earlier one can stand in for it.
        self._shared[:] = np.nan
        return np.split(taken, self._splits)

    def _answer(self, number: int, deadline: float) -> dict[str, object]:
        worker, name = self._running[number], self._members[number].name
        while True:
            try:
                message = worker.receive(_TURN_S)
            except TimeLimitReached:
                self._all_alive()
                if time.monotonic() < deadline:
                    continue
                for other in self._running:
                    other.ask_for_stacks()
                raise self._failed(f"{name} did not answer in time") from None
            if isinstance(message, Answer):
                return message.value
            said = message if message is not None else worker.wait_ended() or "without an answer"
            raise self._failed(f"{name} ended: {said}")

    def _all_alive(self) -> None:
        for member, worker in zip(self._members, self._running, strict=True):
            if (how := worker.ended()) is not None:
                raise self._failed(f"{member.name} ended: {how}")

    def _failed(self, what: str) -> WorkerFailed:
        """All that is left of the processes is in the message: pytest shows nothing else of an error."""
        left = "\n\n".join(remains(worker.files) for worker in self._running)
        return WorkerFailed(f"{what}\n\n{left}", left)


@contextlib.contextmanager
def running(make: Callable[[Sequence[str]], Sequence[Member]], addresses: int, folder: Path) -> Iterator[Group]:
    """The group that ``make`` gives for so many addresses on loopback. It is ended with the body, whatever ends that.

    Between the choice of a port and its use somebody else may take it: then the group is started anew, elsewhere.

    Raises:
        WorkerFailed: a process did not start.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        own = folder / f"attempt-{attempt}"
        own.mkdir(parents=True)
        with ExitStack() as stack:
            try:
                group = Group(make(free_addresses(addresses)), own, stack)
            except WorkerFailed as failure:
                if attempt < _ATTEMPTS and port_taken(failure.details):
                    continue
                raise
            yield group
            return
