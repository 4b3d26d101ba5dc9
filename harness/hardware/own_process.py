"""Runs modules in separate processes, all at once. Each answers with one line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

_T = TypeVar("_T")
#: Start of the line with the answer.
_MARK = "seen "


def answer(seen: Mapping[str, object]) -> None:
    """Print the answer of this process."""
    print(_MARK + json.dumps(seen), flush=True)  # noqa: T201 - what the parent reads


def ask_each(kind: type[_T], module: str, arguments: Sequence[Mapping[str, object]], limit_s: float) -> list[_T | str]:
    """Run ``module`` once for each of ``arguments``, all at once, with that as its one argument, JSON.

    Return the answer of each, or why there is none. All have ended when this returns.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    end = time.monotonic() + limit_s
    with ExitStack() as stack:
        processes = []
        for each in arguments:
            command = [sys.executable, "-m", module, json.dumps(each)]
            process = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            stack.enter_context(process)
            # Runs before the stack waits for the process, so one that hangs is not waited for.
            stack.callback(process.kill)
            processes.append(process)
        return [_answer_of(process, kind, end, limit_s) for process in processes]


def _answer_of(process: subprocess.Popen[str], kind: type[_T], end: float, limit_s: float) -> _T | str:
    try:
        out, errors = process.communicate(timeout=max(1.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return f"no answer within {limit_s:g} s"
    lines = [line.removeprefix(_MARK) for line in out.splitlines() if line.startswith(_MARK)]
    if process.returncode or len(lines) != 1:
        output = [line for line in errors.splitlines() if line.strip()]
        return f"exit code {process.returncode}: {output[-1] if output else 'no output'}"
    try:
        return TypeAdapter(kind).validate_json(lines[0])
    except ValidationError as error:
        return f"invalid answer: {error.errors()[0]['msg']}"
