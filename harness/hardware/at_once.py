"""Operations on several cards at the same time, each timed by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from harness.hardware.machine import Buffer, Machine
from harness.hardware.operation import Operation


@dataclass(frozen=True, slots=True)
class Job:
    """An operation on buffers of one card, ``repeats`` times one after the other."""

    operation: Operation
    card: str
    buffers: tuple[Buffer, ...]
    repeats: int = 1


@dataclass(frozen=True, slots=True)
class Ran:
    """What a job gave, and how long it took in seconds."""

    result: Buffer
    elapsed_s: float


@runtime_checkable
class RunsAtOnce(Protocol):
    """A machine that knows by itself how to do several jobs at the same time, as one with a clock of its own must."""

    def at_once(self, jobs: Sequence[Job], meanwhile: Callable[[], None] | None = None) -> list[Ran]:
        """Do all jobs at the same time, and call ``meanwhile`` while all of them are at work."""


def at_once(
    machine: Machine, jobs: Sequence[Job], meanwhile: Callable[[], None] | None = None, every_s: float = 0.1
) -> list[Ran]:
    """Do all jobs at the same time, in a thread each, and give their results in order.

    ``meanwhile`` is called about every ``every_s`` seconds while they work, at least once.
    """
    if isinstance(machine, RunsAtOnce):
        return machine.at_once(jobs, meanwhile)

    def work(job: Job) -> Ran:
        began = machine.clock_s()
        result = machine.run(job.operation, job.card, job.buffers, job.repeats)
        return Ran(result, machine.clock_s() - began)

    with ThreadPoolExecutor(max_workers=max(1, len(jobs)), thread_name_prefix="card") as pool:
        running = [pool.submit(work, job) for job in jobs]
        pending = set(running)
        while pending:
            pending = wait(pending, timeout=every_s if meanwhile is not None else None).not_done
            if meanwhile is not None:
                meanwhile()
        return [each.result() for each in running]
