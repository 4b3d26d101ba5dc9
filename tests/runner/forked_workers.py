"""Starts the worker processes of a test file as forks of one process that has imported TensorFlow.

That process has not started TensorFlow's runtime, so each fork configures devices of its own, and none spends seconds
on the import. While the fixture is in use, the test's process adopts orphans, and so can wait for the forks.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.runner import process

#: What trainings under a strategy import; none of it starts TensorFlow's runtime.
_IMPORTS = (
    "tensorflow",
    "keras",
    "harness.distribute.one_process",
    "harness.distribute.parameter_server",
    "harness.runner.worker",
)
_SERVE = "import sys; sys.path[:] = sys.argv[2:]; import forked_workers; forked_workers.serve(int(sys.argv[1]))"
_SET_CHILD_SUBREAPER = 36  # prctl(2)


@pytest.fixture(scope="module")
def forked_workers() -> Iterator[int]:
    """Let the harness fork its worker processes from a server, whose process id this is."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    command = [sys.executable, "-c", _SERVE, str(theirs.fileno()), str(Path(__file__).parent), *sys.path]
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    with ours, subprocess.Popen(command, pass_fds=[theirs.fileno()]) as server, pytest.MonkeyPatch.context() as patch:
        theirs.close()
        patch.setattr(process, "subprocess", SimpleNamespace(PIPE=subprocess.PIPE, Popen=partial(_Fork, ours)))
        yield server.pid
        ours.close()  # its end tells the server to end
    libc.prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


class _Fork:
    """A worker process, as ``subprocess.Popen`` shows it to ``harness.runner.process``."""

    def __init__(self, server: socket.socket, command: list[str], **options: Any) -> None:
        (events,) = options["pass_fds"]
        log = options["stderr"].fileno()
        output = options["stdout"] if isinstance(options["stdout"], int) else options["stdout"].fileno()
        read_end, write_end = os.pipe()
        self.stdin = os.fdopen(write_end, "wb")
        self.returncode: int | None = None
        request = {"path": command[3:], "environment": options["env"], "folder": str(Path.cwd()), "events": events}
        body = json.dumps(request).encode()
        socket.send_fds(server, [len(body).to_bytes(8, "big")], [read_end, output, log, events])
        server.sendall(body)
        os.close(read_end)
        self.pid = int.from_bytes(_receive(server, 8), "big")

    def wait(self, timeout: float) -> int:
        """Wait for the process, which becomes a child of this one as soon as it is an orphan."""
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def serve(descriptor: int) -> None:
    """Import TensorFlow, and fork a worker for each request, until the other end is closed."""
    for name in _IMPORTS:
        importlib.import_module(name)
    gc.freeze()
    with socket.socket(fileno=descriptor) as connection:
        while True:
            size, descriptors, _, _ = socket.recv_fds(connection, 8, 4)
            if not size:
                return
            request = json.loads(_receive(connection, int.from_bytes(size, "big")))
            read_end, write_end = os.pipe()
            child = os.fork()
            if not child:
                worker = os.fork()
                if worker:
                    os.write(write_end, worker.to_bytes(8, "big"))
                    os._exit(0)
                connection.close()
                _work(request, *descriptors)
            os.waitpid(child, 0)  # from now on the worker is an orphan, which the test's process adopts
            connection.sendall(os.read(read_end, 8))
            for each in (read_end, write_end, *descriptors):
                os.close(each)


def _work(request: dict[str, Any], stdin: int, output: int, log: int, events: int) -> None:
    """Become the worker process that ``subprocess.Popen`` would have started."""
    os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:] = request["path"]
    held = [os.dup(each) for each in (stdin, output, log, events)]
    for each, number in zip(held, (0, 1, 2, request["events"]), strict=True):
        os.dup2(each, number)
    status = 1
    try:
        importlib.import_module("harness.runner.worker").main()
        status = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _receive(connection: socket.socket, size: int) -> bytes:
    body = b""
    while len(body) < size:
        body += connection.recv(size - len(body))
    return body
