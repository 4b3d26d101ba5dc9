"""Runs the command line: in this process, which takes no time, or in one of its own, as a user does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import forks
import pytest

import harness
from harness.cli.app import main

IMPORT_ROOT = Path(harness.__file__).resolve().parent.parent
PLANTED_FOLDER = Path(__file__).resolve().parent.parent / "checking"
#: How long anything here may take before the test gives up, in seconds.
LIMIT_S = 900


def run(folder: Path, *arguments: str, planted: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call the main function of ``harness`` in this process; with ``planted`` it knows the planted checks.

    What starts TensorFlow's server, ends by a signal or depends on how Python starts belongs in :func:`run_process`.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with (
        forks.forking(),
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryFile("w+", encoding="utf-8") as stdout,
        tempfile.TemporaryFile("w+", encoding="utf-8") as stderr,
    ):
        patch.chdir(folder)
        patch.delenv("COLUMNS", raising=False)
        patch.setattr(sys, "argv", ["harness", *arguments])
        patch.setattr(sys, "stdout", stdout)
        patch.setattr(sys, "stderr", stderr)
        patch.setattr(tempfile, "tempdir", None)
        patch.setenv("HARNESS_PROFILES", "")  # which the commands set
        if planted:
            patch.syspath_prepend(str(PLANTED_FOLDER))
            patch.setenv("_HARNESS_SUITE", "planted_checks:SUITE")
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        texts = []
        for stream in (stdout, stderr):
            stream.seek(0)
            texts.append(stream.read())
    assert isinstance(code, int)
    return subprocess.CompletedProcess(list(arguments), int(code), *texts)


def start(folder: Path, *arguments: str, planted: bool = True, **environment: str) -> subprocess.Popen[str]:
    """Start ``python -m harness`` in ``folder``, as a fork; with ``planted`` it knows the planted checks."""
    paths = [str(PLANTED_FOLDER), str(IMPORT_ROOT), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment}
    env.pop("COLUMNS", None)
    if planted:
        env["_HARNESS_SUITE"] = "planted_checks:SUITE"
    # Whoever runs the tests in the background of a shell lets them inherit that ^C is ignored.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return forks.Fork(
            [sys.executable, "-m", "harness", *arguments],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)


def run_process(
    folder: Path, *arguments: str, planted: bool = True, limit_s: float = LIMIT_S, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m harness`` in ``folder`` to its end."""
    with start(folder, *arguments, planted=planted, **environment) as process:
        stdout, stderr = process.communicate(timeout=limit_s)
    return subprocess.CompletedProcess(list(arguments), process.returncode, stdout, stderr)
