"""Runs checks in a worker process, or in two at once; if one is lost, continues with its rest in a fresh one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from harness.checking.check import Check, Level
from harness.devices.cores import usable_cores
from harness.devices.kinds.cpu import CpuSpec
from harness.devices.lost import naming_hosts
from harness.devices.name import DeviceName
from harness.devices.nvidia import driver_version
from harness.devices.spec import parse_spec
from harness.errors import RefusedByWorker
from harness.runner.job import Job, WorkerFiles
from harness.runner.limits import DEFAULT_TIMEOUT_S, LAST_RESORT_S, STARTUP_LIMIT_S
from harness.runner.messages import Finished, Ready, Refused, Started
from harness.runner.postmortem import lost, not_run
from harness.runner.process import WorkerProcess

Event: TypeAlias = Ready | Started | Finished
#: What a worker process has to tell: an event, or ``None`` for nothing so far.
Events: TypeAlias = Generator[Event | None, None, None]

#: How long one of two processes is listened to before the other is, in seconds.
_TICK_S = 0.05
#: What a second process costs: it imports TensorFlow and configures the devices. In seconds.
_STARTUP_S = 4.0


@dataclass
class _Gate:
    """Whether a process may run its checks. Until then it starts up, and waits."""

    is_open: bool = False


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
    #: The checks that a second process runs: at the same time if all devices are CPUs, otherwise afterwards.
    beside: tuple[str, ...] = ()
    #: The checks that nothing runs beside. Where there is a second process, they come first.
    alone: tuple[str, ...] = ()


def has_idle_core(spec: str) -> bool:
    """Whether checks can run in two processes: on logical CPUs, on more than one core.

    Two processes cannot share a GPU, or the servers of ``cores:N``.
    """
    logical = isinstance(parse_spec(spec), CpuSpec) or (spec == "auto" and driver_version() is None)
    return logical and len(usable_cores()) > 1


def shared_out(checks: Sequence[Check], alone: Collection[str] = ()) -> tuple[str, ...]:
    """Choose the checks for a second process, so that both end at about the same time; none where that gains little.

    Checks of hardware stay in the first process, and nothing runs beside those of ``alone``.
    """
    own_s, beside_s = sum(check.typical_s for check in checks if check.hardware and check.id not in alone), 0.0
    beside = set()
    for check in sorted((check for check in checks if not check.hardware), key=lambda check: -check.typical_s):
        if beside_s < own_s:
            beside_s += check.typical_s
            beside.add(check.id)
        else:
            own_s += check.typical_s
    return tuple(check.id for check in checks if check.id in beside) if beside_s > _STARTUP_S else ()


def run_checks(plan: Plan) -> Generator[Event, None, None]:
    """Run the checks of ``plan``, and yield events as they come. Each check gets one ``Finished``.

    Two processes start up at the same time, before the first check begins. Closing the iterator ends them. Raise
    RefusedByWorker if the devices are unavailable.
    """
    for pattern in ("worker-*.log", "worker-*.stacks"):  # of earlier runs
        for path in plan.logs.glob(pattern):
            with contextlib.suppress(OSError):  # an unwritable folder is handled when a log is made
                path.unlink()
    alone = set(plan.alone)
    ready = together = False
    with contextlib.ExitStack() as stack:

        def process(name: str, checks: Sequence[str], gate: _Gate) -> Events:
            return stack.enter_context(contextlib.closing(_processes(plan, name, checks, gate)))

        gate, gate_beside = _Gate(not plan.beside), _Gate()
        own = [check for check in plan.checks if check not in plan.beside]
        if plan.beside:
            own.sort(key=lambda check: check not in alone)
        first = process("worker", own, gate)
        running = [first, *([process("worker-beside", plan.beside, gate_beside)] if plan.beside else ())]
        #: What the second process tells before the devices of the first are known to be available.
        early: list[Event] = []
        while running:
            for events in tuple(running):
                for event in events:
                    if event is None:
                        break
                    if isinstance(event, Finished):
                        alone.discard(event.result.check)
                        log = Path(event.result.log or "")
                    if isinstance(event, Ready) and events is first:
                        ready = True
                        together = all(DeviceName.parse(name).kind == "CPU" for name in event.devices)
                    elif isinstance(event, Ready):
                        gate.is_open = True
                    if ready or events is first:
                        yield event
                    else:
                        early.append(event)
                else:
                    running.remove(events)
                    gate.is_open = True
            if first not in running and not ready:
                for check in plan.beside:
                    yield Finished(not_run(check, plan.checks[0], WorkerFiles(log, log), spec=plan.spec))
                return
            if ready:
                yield from early
                early.clear()
            gate_beside.is_open = first not in running or (together and not alone)


def _processes(plan: Plan, name: str, checks: Sequence[str], gate: _Gate) -> Events:
    """Run ``checks`` in a process, and what is left of them in another one when it is lost; ``name`` is of its log."""
    remaining = list(checks)
    number = 0
    while remaining:
        number += 1
        files = WorkerFiles.create(plan.logs, f"{name}-{number}")
        waits = not gate.is_open
        with WorkerProcess(_job(plan, remaining, waits=waits), files) as worker:
            yield from _listen(worker, plan, remaining, gate if waits else None)
        files.discard_empty()


def _job(plan: Plan, remaining: list[str], *, waits: bool) -> Job:
    return Job(
        task="harness.checking.process:run",
        arguments={
            "spec": plan.spec,
            "suite": plan.suite,
            "checks": list(remaining),
            "level": plan.level.value,
            "history": list(plan.history),
            "waits": waits,
        },
        limit_s=max(plan.timeout_s, plan.startup_limit_s) + LAST_RESORT_S,
    )


def _listen(worker: WorkerProcess, plan: Plan, remaining: list[str], gate: _Gate | None) -> Iterator[Event | None]:
    """Yield the events of ``worker`` until all is done or it is lost. A check with a result leaves ``remaining``.

    A ``gate`` is what the worker waits for once its devices are ready.
    """
    ready = False
    running: str | None = None
    began = time.monotonic()
    while remaining:
        limit_s = plan.timeout_s if ready else plan.startup_limit_s
        since = time.monotonic()
        while not worker.has_news(_TICK_S):
            if ready and gate is not None:  # it waits for as long as it takes
                since = time.monotonic()
                if gate.is_open:
                    worker.go_on()
                    gate = None
            elif time.monotonic() - since >= limit_s:
                break
            yield None
        message, how = worker.next_message(limit_s, since)
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
            if message.result.check in remaining:  # without devices, it runs the checks that say why
                remaining.remove(message.result.check)
            yield Finished(replace(message.result, log=str(worker.files.log)))
            if message.spent:
                return
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
        what = f"before the check started, {what}" if ready else f"while the devices were being configured, {what}"
    remaining.remove(check)
    worker.end()  # before its files are read
    yield Finished(lost(check, what, worker.files, elapsed_s=elapsed_s, spec=plan.spec))
    if not ready:
        for other in tuple(remaining):
            remaining.remove(other)
            yield Finished(not_run(other, check, worker.files, spec=plan.spec))
