"""Modules that run in processes of their own, all at once, and answer with one line of JSON each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

#: What the line with the answer begins with.
_MARK = "seen "


def answer(seen: Mapping[str, object]) -> None:
    """Say what there was to see: for the module that runs in the process."""
    print(_MARK + json.dumps(seen), flush=True)  # noqa: T201 - what the parent reads


def ask_each(module: str, told: Sequence[Mapping[str, object]], limit_s: float) -> list[tuple[str | None, str]]:
    """Run ``module`` once for each of ``told``, all at the same time; it gets that as JSON, its one argument.

    Each gives the JSON that it answered with, or ``None`` and why there is none. All are gone when this returns.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    end = time.monotonic() + limit_s
    with ExitStack() as stack:
        processes = []
        for each in told:
            command = [sys.executable, "-m", module, json.dumps(each)]
            process = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            stack.enter_context(process)
            # Before the process is waited for, so that one which hears nothing is not waited for for ever.
            stack.callback(process.kill)
            processes.append(process)
        return [_heard(process, end, limit_s) for process in processes]


def _heard(process: subprocess.Popen[str], end: float, limit_s: float) -> tuple[str | None, str]:
    try:
        out, errors = process.communicate(timeout=max(1.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None, f"nothing was heard of it for {limit_s:g} s"
    lines = [line.removeprefix(_MARK) for line in out.splitlines() if line.startswith(_MARK)]
    if process.returncode or len(lines) != 1:
        said = [line for line in errors.splitlines() if line.strip()]
        return None, f"exit code {process.returncode}: {said[-1] if said else 'it said nothing'}"
    return lines[0], ""
