"""Runs checks in a worker process; if that is lost, continues with the rest in a fresh one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from harness.checking.check import Level
from harness.devices.lost import naming_hosts
from harness.errors import RefusedByWorker
from harness.runner.job import Job, WorkerFiles
from harness.runner.limits import DEFAULT_TIMEOUT_S, LAST_RESORT_S, STARTUP_LIMIT_S
from harness.runner.messages import Answer, Done, Finished, Message, Ready, Refused, Started
from harness.runner.postmortem import lost, not_run
from harness.runner.process import TimeLimitReached, WorkerProcess

Event: TypeAlias = Ready | Started | Finished


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: ids of checks of a suite (``module:attribute``) on the devices of ``spec``; logs go to ``logs``."""

    spec: str
    checks: tuple[str, ...]
    logs: Path
    suite: str
    timeout_s: float = DEFAULT_TIMEOUT_S
    startup_limit_s: float = STARTUP_LIMIT_S
    level: Level = Level.QUICK
    #: The file of a described machine, in the place of a real one.
    described: str = ""
    #: Records of earlier runs of this machine, which figures are compared with.
    history: tuple[str, ...] = ()


def run_checks(plan: Plan) -> Generator[Event, None, None]:
    """Run the checks of ``plan``, and yield what happens as it happens. Each check gets one ``Finished``.

    Closing the iterator ends the process that runs.

    Raises:
        RefusedByWorker: the devices are unavailable.
    """
    remaining = list(plan.checks)
    _remove_logs_of_earlier_runs(plan.logs)
    number = 0
    while remaining:
        number += 1
        files = WorkerFiles.create(plan.logs, f"worker-{number}")
        with WorkerProcess(_job(plan, remaining), files) as worker:
            yield from _listen(worker, plan, remaining)
        files.discard_empty()


def _remove_logs_of_earlier_runs(logs: Path) -> None:
    """A log of an earlier run beside those of this one would be read as one of this run."""
    for pattern in ("worker-*.log", "worker-*.stacks"):
        for path in logs.glob(pattern):
            with contextlib.suppress(OSError):  # a folder that cannot be written is dealt with when a log is made
                path.unlink()


def _job(plan: Plan, remaining: list[str]) -> Job:
    return Job(
        task="harness.checking.process:run",
        arguments={
            "spec": plan.spec,
            "suite": plan.suite,
            "checks": list(remaining),
            "level": plan.level.value,
            "described": plan.described,
            "history": list(plan.history),
        },
        limit_s=max(plan.timeout_s, plan.startup_limit_s) + LAST_RESORT_S,
    )


def _listen(worker: WorkerProcess, plan: Plan, remaining: list[str]) -> Iterator[Event]:
    """What ``worker`` says until all is done or it is lost. A check that has a result leaves ``remaining``."""
    ready = False
    running: str | None = None
    began = time.monotonic()
    while remaining:
        message, lost_by = _next(worker, plan.timeout_s if ready else plan.startup_limit_s)
        if isinstance(message, Refused):
            raise RefusedByWorker(message.error, message.message, message.details)
        if isinstance(message, Ready):
            ready = True
            yield message
        elif isinstance(message, Started):
            running, began = message.check, time.monotonic()
            yield message
        elif isinstance(message, Finished):
            running, began = None, time.monotonic()
            remaining.remove(message.result.check)
            yield Finished(replace(message.result, log=str(worker.files.log)))
        else:
            yield from _casualties(worker, plan, remaining, running, ready, lost_by, time.monotonic() - began)
            return


def _next(worker: WorkerProcess, limit_s: float) -> tuple[Message | None, str]:
    """The next message; or ``None``, and how the process was lost."""
    try:
        message = worker.receive(limit_s)
    except TimeLimitReached:
        worker.ask_for_stacks()
        return None, f"timed out after {limit_s:g} s"
    except ValueError as error:
        return None, f"its process sent an invalid message ({error})"
    if message is None or isinstance(message, (Answer, Done)):
        how = worker.wait_ended(2.0) or "its pipe was closed"
        return None, f"its process ended: {how}"
    return message, ""


def _casualties(
    worker: WorkerProcess,
    plan: Plan,
    remaining: list[str],
    running: str | None,
    ready: bool,
    lost_by: str,
    elapsed_s: float,
) -> Iterator[Finished]:
    """The results of the check that was lost, and of those that can no longer be run."""
    # Before the process is ended: it may hang because a host no longer answers.
    lost_by = naming_hosts(lost_by, spec=plan.spec)
    check = running if running is not None else remaining[0]
    if running is None:
        lost_by = f"before it started, {lost_by}" if ready else f"while the devices were being configured, {lost_by}"
    remaining.remove(check)
    worker.end()  # before its files are read
    yield Finished(lost(check, lost_by, worker.files, elapsed_s=elapsed_s, spec=plan.spec))
    if not ready:
        for other in tuple(remaining):
            remaining.remove(other)
            yield Finished(not_run(other, check, worker.files, spec=plan.spec))
