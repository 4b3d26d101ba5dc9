"""Asks a process of its own one question, and waits for the answer."""

from __future__ import annotations

from harness.errors import RefusedByWorker, WorkerFailed
from harness.runner.job import Job, WorkerFiles
from harness.runner.messages import Answer, Refused
from harness.runner.postmortem import innermost, remains
from harness.runner.process import TimeLimitReached, WorkerProcess


def ask(job: Job, files: WorkerFiles, *, limit_s: float | None = None, stdout: int | None = None) -> dict[str, object]:
    """Do ``job`` in a worker process, and return its answer. Its stdout goes to ``stdout``, by default the log.

    Raises:
        RefusedByWorker: the request cannot be carried out.
        WorkerFailed: the process crashed, or timed out after ``limit_s`` seconds.
    """
    with WorkerProcess(job, files, stdout=stdout) as worker:
        try:
            message = worker.receive(limit_s)
        except TimeLimitReached:
            worker.ask_for_stacks()
            raise _failure(files, f"timed out after {limit_s:g} s") from None
        if isinstance(message, Refused):
            raise RefusedByWorker(message.error, message.message, message.details)
        if not isinstance(message, Answer):
            raise _failure(files, f"ended: {worker.wait_ended(2.0) or 'without an answer'}")
    files.discard_empty()
    return message.value


def _failure(files: WorkerFiles, what: str) -> WorkerFailed:
    seen = f"{files.stacks} and {files.log}" if files.stacks.stat().st_size else files.log
    place = innermost(files.stacks.read_text(encoding="utf-8", errors="replace"))
    return WorkerFailed(f"its process {what}{f', at {place}' if place else ''}; see {seen}", remains(files))
