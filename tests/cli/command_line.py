"""Runs the command line in a process of its own, as a user does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

import harness

IMPORT_ROOT = Path(harness.__file__).resolve().parent.parent
PLANTED_FOLDER = Path(__file__).resolve().parent.parent / "checking"
#: How long anything here may take before the test gives up, in seconds.
LIMIT_S = 180


def start(folder: Path, *arguments: str, planted: bool = True, **environment: str) -> subprocess.Popen[str]:
    """Start ``harness`` in ``folder``; with ``planted`` it knows the planted checks, which need no TensorFlow."""
    paths = [str(PLANTED_FOLDER), str(IMPORT_ROOT), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment}
    env.pop("COLUMNS", None)
    if planted:
        env["_HARNESS_SUITE"] = "planted_checks:SUITE"
    # Whoever runs the tests in the background of a shell lets them inherit that ^C is ignored.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "harness.cli.app", *arguments],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)


def run(
    folder: Path, *arguments: str, planted: bool = True, limit_s: float = LIMIT_S, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run ``harness`` in ``folder`` to its end."""
    with start(folder, *arguments, planted=planted, **environment) as process:
        stdout, stderr = process.communicate(timeout=limit_s)
    return subprocess.CompletedProcess(list(arguments), process.returncode, stdout, stderr)


def is_gone(pid: int) -> bool:
    """Whether no process of this id lives."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def wait_until(true: Callable[[], bool], limit_s: float = 20) -> bool:
    """Wait until ``true()`` holds; false when it does not within ``limit_s`` seconds."""
    deadline = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
