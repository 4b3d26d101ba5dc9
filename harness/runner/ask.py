"""Runs jobs in worker processes and waits for their answers: one by itself, or several that work together."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from harness.errors import RefusedByWorker, WorkerFailed
from harness.runner.job import Job, WorkerFiles
from harness.runner.limits import STARTUP_LIMIT_S
from harness.runner.messages import Answer, Refused, Started
from harness.runner.postmortem import describe_loss
from harness.runner.process import TimeLimitReached, WorkerProcess

#: How often processes are restarted when another program has taken their ports first.
_ATTEMPTS = 3
_TAKEN = ("Address already in use", "Could not start gRPC server", "Failed to bind")
#: How long to wait for a message of one process before looking at the next, in seconds.
_TURN_S = 0.1


def ask(job: Job, files: WorkerFiles, *, limit_s: float | None = None, stdout: int | None = None) -> dict[str, object]:
    """Do ``job`` in a worker process, and return its answer. Its stdout goes to ``stdout``, by default the log.

    Raises:
        RefusedByWorker: the request cannot be carried out.
        WorkerFailed: the process crashed, or timed out after ``limit_s`` seconds.
    """
    with WorkerProcess(job, files, stdout=stdout) as worker:
        message, loss = worker.next_message(limit_s)
    if isinstance(message, Refused):
        raise RefusedByWorker(message.error, message.message, message.details)
    if not isinstance(message, Answer):
        what, details = describe_loss(loss or "sent no answer", files)
        seen = f"{files.stacks} and {files.log}" if files.stacks.stat().st_size else files.log
        raise WorkerFailed(f"the worker process {what}; see {seen}", details)
    files.discard_empty()
    return message.value


@dataclass(frozen=True)
class Ended:
    """The answer of one process, or how it failed (``details``: its stacks and its last output)."""

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
    """Do the jobs that ``make`` returns for ``count`` free addresses, all at once, each in a process.

    Wait for all answers, ``limit_s`` seconds from when all are ready. When one process fails, the others, which would
    wait for it for ever, are ended. Only the first ``needed`` jobs have to answer (``None``: all of them); the others
    serve them until they have. If another program takes a port before it is used, all are restarted with other ports.
    Raise RefusedByWorker if a process refused the request.
    """
    ended: list[Ended] = []
    for _ in range(_ATTEMPTS):
        made = make(free_addresses(count))
        ended = _work_together(made, limit_s, len(made) if needed is None else needed)
        if not any(port_taken(each.details) for each in ended):
            break
    return ended


def port_taken(details: str) -> bool:
    """Whether the output of a process shows that another program has its port."""
    return any(text in details for text in _TAKEN)


def _work_together(made: Sequence[tuple[Job, WorkerFiles]], limit_s: float, needed: int) -> list[Ended]:
    with ExitStack() as stack:
        running = [stack.enter_context(WorkerProcess(job, files)) for job, files in made]
        answers: dict[int, dict[str, object]] = {}
        failed: dict[int, str] = {}
        started: set[int] = set()
        deadline = time.monotonic() + STARTUP_LIMIT_S
        wanted = set(range(needed))
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
                    if len(started) == needed:
                        deadline = time.monotonic() + limit_s
                elif isinstance(message, Answer):
                    answers[number] = message.value
                else:
                    failed[number] = f"ended: {worker.wait_ended() or 'no answer'}"
            if time.monotonic() > deadline:
                break
        served = wanted <= set(answers)
        for number, worker in enumerate(running):
            if not served and number not in answers and number not in failed:
                worker.ask_for_stacks()
        hung = f"was ended because process {min(failed)} failed" if failed else f"timed out after {limit_s:g} s"
        ended = [
            Ended(answers.get(number, {}))
            if number in answers or served
            else Ended(None, *describe_loss(failed.get(number, hung), files))
            for number, (_, files) in enumerate(made)
        ]
    for _, files in made:
        files.discard_empty()
    return ended


def free_addresses(count: int) -> list[str]:
    """Return different addresses on the loopback interface whose ports are free at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    finally:
        for each in sockets:
            each.close()
