"""No server outlives its run, whatever ends the run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import forks
import pytest
from ended_processes import is_gone, wait_until

import harness

_START = """
import os, sys, time
import harness
from harness.devices.runtime import server_process
devices = harness.configure("cores:1")
print(server_process(devices[0]), flush=True)
"""
#: A child that lives on has the pipe to the servers too.
_LEAVES_A_CHILD = (
    _START
    + """
child = os.fork()
if child == 0:
    time.sleep(300)
print(child, flush=True)
time.sleep(300)
"""
)
_RAISES = _START + "raise KeyError('an error of the user')\n"
#: The servers go on while the client deals with ^C.
_INTERRUPTED = (
    _START
    + """
import tensorflow as tf
try:
    print("ready", flush=True)
    for _ in range(3000):
        time.sleep(0.1)  # in one long sleep, Python would not see a signal that comes just before it
except KeyboardInterrupt:
    with tf.device(devices[0].name):
        print("after ^C:", float(tf.reduce_sum(tf.ones([3]))), flush=True)
    raise
"""
)


def _start(code: str) -> subprocess.Popen[str]:
    paths = [str(Path(harness.__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)  # else a test in the background lets ^C be ignored
    try:
        return forks.Fork(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """The processes that a test starts: their groups are ended with it."""
    made: list[subprocess.Popen[str]] = []
    yield made
    for process in made:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line, process.communicate()[1][-2000:]
    return line


def test_a_killed_client_takes_its_server_along_though_a_child_of_it_holds_the_pipe(
    started: list[subprocess.Popen[str]],
) -> None:
    process = _start(_LEAVES_A_CHILD)
    started.append(process)
    server, child = int(_line(process)), int(_line(process))
    assert not is_gone(server)
    os.kill(process.pid, signal.SIGKILL)
    assert wait_until(lambda: is_gone(server))
    assert not is_gone(child), "what held the pipe lives on"


def test_an_error_of_the_user_ends_the_server_without_another_word(started: list[subprocess.Popen[str]]) -> None:
    process = _start(_RAISES)
    started.append(process)
    server = int(_line(process))
    _, stderr = process.communicate(timeout=600)
    assert process.returncode == 1
    assert stderr.endswith("KeyError: 'an error of the user'\n")
    assert wait_until(lambda: is_gone(server))


def test_an_interrupted_client_can_still_compute_and_the_server_ends_with_it(
    started: list[subprocess.Popen[str]],
) -> None:
    process = _start(_INTERRUPTED)
    started.append(process)
    server = int(_line(process))
    assert _line(process) == "ready"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert _line(process) == "after ^C: 3.0"
    _, stderr = process.communicate(timeout=600)
    assert "KeyboardInterrupt" in stderr
    assert "reset by peer" not in stderr
    assert wait_until(lambda: is_gone(server))
