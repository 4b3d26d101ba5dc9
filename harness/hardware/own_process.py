"""Runs a task in separate processes, all at once. Each answers once."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from harness.runner.job import Job, WorkerFiles
from harness.runner.limits import LAST_RESORT_S
from harness.runner.messages import Answer, Refused
from harness.runner.process import TimeLimitReached, WorkerProcess

_T = TypeVar("_T")


def ask_each(kind: type[_T], task: str, arguments: Sequence[Mapping[str, object]], limit_s: float) -> list[_T | str]:
    """Run ``task``, ``module:function``, in a process for each of ``arguments``, all at once.

    Return the answer of each, or why there is none: a process that answers and then crashes, as TensorFlow shuts down,
    has failed. All have ended when this returns.
    """
    end = time.monotonic() + limit_s
    with tempfile.TemporaryDirectory(prefix="harness-processes-") as folder, ExitStack() as stack:
        jobs = [Job(task, dict(each), limit_s=limit_s + LAST_RESORT_S) for each in arguments]
        processes = [
            stack.enter_context(WorkerProcess(job, WorkerFiles.create(Path(folder), str(number))))
            for number, job in enumerate(jobs)
        ]
        return [_answer_of(process, kind, end, limit_s) for process in processes]


def _answer_of(process: WorkerProcess, kind: type[_T], end: float, limit_s: float) -> _T | str:
    try:
        message = process.receive(max(1.0, end - time.monotonic()))
    except TimeLimitReached:
        return f"no answer within {limit_s:g} s"
    if isinstance(message, Refused):
        return message.message
    ended = process.wait_ended(max(1.0, end - time.monotonic()))
    if isinstance(message, Answer) and ended == "exit code 0":
        return TypeAdapter(kind).validate_python(message.value)
    output = process.files.log.read_text(encoding="utf-8", errors="replace").split("\n")
    last = next((line for line in reversed(output) if line.strip()), "no output")
    return f"{ended or 'did not end'}: {last}"
