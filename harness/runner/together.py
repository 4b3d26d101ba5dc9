"""Several processes that work together: all have to answer, and where one fails or all hang, all are ended."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from harness.errors import RefusedByWorker
from harness.runner.job import Job, WorkerFiles
from harness.runner.limits import STARTUP_LIMIT_S
from harness.runner.messages import Answer, Refused, Started
from harness.runner.postmortem import innermost, remains
from harness.runner.process import TimeLimitReached, WorkerProcess

#: How often processes are started anew whose ports somebody else had taken before they did.
_ATTEMPTS = 3
_TAKEN = ("Address already in use", "Could not start gRPC server", "Failed to bind")
#: How long one of them is listened to before the next, in seconds.
_TURN_S = 0.1


@dataclass(frozen=True)
class Ended:
    """What became of one process: its answer, or how it failed (``details``: its stacks and its last output)."""

    answer: dict[str, object] | None
    message: str = ""
    details: str = ""


def work_at_addresses(
    count: int,
    make: Callable[[Sequence[str]], Sequence[tuple[Job, WorkerFiles]]],
    limit_s: float,
    *,
    needed: int | None = None,
) -> list[Ended]:
    """As :func:`work_together`, with the jobs that ``make`` gives for ``count`` addresses that nobody uses.

    Between the choice of a port and its use somebody else may take it: then all are started anew, elsewhere.
    """
    ended: list[Ended] = []
    for _ in range(_ATTEMPTS):
        made = make(free_addresses(count))
        ended = work_together([job for job, _ in made], [files for _, files in made], limit_s, needed=needed)
        if not any(port_taken(each.details) for each in ended):
            break
    return ended


def port_taken(details: str) -> bool:
    """Whether a process said, in what is left of it, that somebody else has its port."""
    return any(text in details for text in _TAKEN)


def work_together(
    jobs: Sequence[Job], files: Sequence[WorkerFiles], limit_s: float, *, needed: int | None = None
) -> list[Ended]:
    """Do all the jobs at once, each in a process, and wait for all answers.

    Each says when it is ready; from when the last one is, ``limit_s`` seconds are left.

    When one process fails, the others, which would wait for it for ever, are ended. Only the first ``needed`` jobs have
    to answer (``None``: all of them); the others serve them until they have.

    Raises:
        RefusedByWorker: a process refused what was asked.
    """
    with ExitStack() as stack:
        running = [stack.enter_context(WorkerProcess(job, own)) for job, own in zip(jobs, files, strict=True)]
        answers: dict[int, dict[str, object]] = {}
        failed: dict[int, str] = {}
        started: set[int] = set()
        deadline = time.monotonic() + STARTUP_LIMIT_S
        wanted = set(range(len(running) if needed is None else needed))
        while not wanted <= set(answers) and not failed:
            for number, worker in enumerate(running):
                if number in answers:
                    continue
                try:
                    message = worker.receive(_TURN_S)
                except TimeLimitReached:
                    continue
                if isinstance(message, Refused):
                    raise RefusedByWorker(message.error, f"process {number}: {message.message}", message.details)
                if isinstance(message, Started):
                    started.add(number)
                    if len(started) == (len(running) if needed is None else needed):
                        deadline = time.monotonic() + limit_s
                elif isinstance(message, Answer):
                    answers[number] = message.value
                else:
                    failed[number] = f"ended: {worker.wait_ended(2.0) or 'without an answer'}"
            if time.monotonic() > deadline:
                break
        silent = [number for number in range(len(running)) if number not in answers and number not in failed]
        served = wanted <= set(answers)
        for number in [] if served else silent:
            running[number].ask_for_stacks()
        ended = [
            Ended(answers.get(number, {}))
            if number in answers or served
            else _remains(failed.get(number, _hung(limit_s, failed)), files[number])
            for number in range(len(running))
        ]
    for own in files:
        own.discard_empty()
    return ended


def _hung(limit_s: float, failed: dict[int, str]) -> str:
    if failed:
        return f"was ended because process {min(failed)} failed"
    return f"timed out after {limit_s:g} s"


def _remains(message: str, files: WorkerFiles) -> Ended:
    place = innermost(files.stacks.read_text(encoding="utf-8", errors="replace")) if files.stacks.exists() else None
    return Ended(None, f"{message}{f', at {place}' if place else ''}", remains(files))


def free_addresses(count: int) -> list[str]:
    """Addresses on the loopback interface whose ports nobody uses at this moment, no two the same."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    finally:
        for each in sockets:
            each.close()
