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
from harness.runner.messages import Finished, Ready, Refused, Started
from harness.runner.postmortem import lost, not_run
from harness.runner.process import WorkerProcess

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
    #: Files of earlier runs of this machine, which figures are compared with.
    history: tuple[str, ...] = ()


def run_checks(plan: Plan) -> Generator[Event, None, None]:
    """Run the checks of ``plan``, and yield events as they come. Each check gets one ``Finished``.

    Closing the iterator ends the worker process. Raise RefusedByWorker if the devices are unavailable.
    """
    remaining = list(plan.checks)
    for pattern in ("worker-*.log", "worker-*.stacks"):  # of earlier runs
        for path in plan.logs.glob(pattern):
            with contextlib.suppress(OSError):  # an unwritable folder is handled when a log is made
                path.unlink()
    number = 0
    while remaining:
        number += 1
        files = WorkerFiles.create(plan.logs, f"worker-{number}")
        with WorkerProcess(_job(plan, remaining), files) as worker:
            yield from _listen(worker, plan, remaining)
        files.discard_empty()


def _job(plan: Plan, remaining: list[str]) -> Job:
    return Job(
        task="harness.checking.process:run",
        arguments={
            "spec": plan.spec,
            "suite": plan.suite,
            "checks": list(remaining),
            "level": plan.level.value,
            "history": list(plan.history),
        },
        limit_s=max(plan.timeout_s, plan.startup_limit_s) + LAST_RESORT_S,
    )


def _listen(worker: WorkerProcess, plan: Plan, remaining: list[str]) -> Iterator[Event]:
    """Yield the events of ``worker`` until all is done or it is lost. A check with a result leaves ``remaining``."""
    ready = False
    running: str | None = None
    began = time.monotonic()
    while remaining:
        message, how = worker.next_message(plan.timeout_s if ready else plan.startup_limit_s)
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
            yield from _results_after_loss(worker, plan, remaining, running, ready, how, time.monotonic() - began)
            return


def _results_after_loss(
    worker: WorkerProcess,
    plan: Plan,
    remaining: list[str],
    running: str | None,
    ready: bool,
    how: str,
    elapsed_s: float,
) -> Iterator[Finished]:
    """Yield the results of the check whose process was lost, and of those that can no longer run."""
    # Before the process is ended: it may hang because a host no longer answers.
    what = naming_hosts(f"its process {how}", spec=plan.spec)
    check = running if running is not None else remaining[0]
    if running is None:
        what = f"before it started, {what}" if ready else f"while the devices were being configured, {what}"
    remaining.remove(check)
    worker.end()  # before its files are read
    yield Finished(lost(check, what, worker.files, elapsed_s=elapsed_s, spec=plan.spec))
    if not ready:
        for other in tuple(remaining):
            remaining.remove(other)
            yield Finished(not_run(other, check, worker.files, spec=plan.spec))
