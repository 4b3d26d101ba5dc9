"""A worker process as its parent sees it: started, read from, and ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from harness.runner.job import Job, WorkerFiles
from harness.runner.messages import Done, Message, decode
from harness.runner.worker import STACKS_SIGNAL

#: The program of the interpreter. It sets the parent's module path before it imports anything: with ``-m`` or a bare
#: ``-c``, a ``random.py`` in the user's folder would take the place of Python's own.
_BOOT = "import sys; sys.path[:] = sys.argv[1:]; from harness.runner.worker import main; main()"

#: How often a silent process is checked, in seconds: it may be dead while a child of it holds the pipe open.
_TICK_S = 0.2
#: How long a process that has closed its pipe may take to end, and one that hangs to write its stacks, in seconds. Both
#: take a moment, unless the machine is busy, or the process closed its pipe and lives on, or is stopped.
_END_LIMIT_S, _STACKS_LIMIT_S = 30.0, 30.0


class TimeLimitReached(Exception):
    """The process sent no message within its time limit."""


class WorkerProcess:
    """A worker process. As a context manager it is ended, with everything that it started, whatever happens.

    Its stderr goes to ``files.log``, and its stdout too unless ``stdout`` names another descriptor.
    """

    def __init__(self, job: Job, files: WorkerFiles, *, stdout: int | None = None) -> None:
        self.files = files
        self._buffer = bytearray()
        self._closed = False
        self._ended: str | None = None
        self._read_end, write_end = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._read_end, selectors.EVENT_READ)
        try:
            with files.log.open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _BOOT, *sys.path],
                    stdin=subprocess.PIPE,
                    stdout=log if stdout is None else stdout,
                    stderr=log,
                    pass_fds=(write_end,),
                    start_new_session=True,
                    env=_environment(files),
                )
        finally:
            os.close(write_end)
        self._write(replace(job, events=write_end, stacks=str(files.stacks)).encode())

    @property
    def pid(self) -> int:
        """The process id, which is also that of its process group."""
        return self._process.pid

    def go_on(self) -> None:
        """Tell the process to go on, if its task waits for that."""
        self._write(b"\n")

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died: receive() says so
            self._process.stdin.write(data)
            self._process.stdin.flush()

    def has_news(self, wait_s: float) -> bool:
        """Whether something came, or the process ended, within ``wait_s`` seconds."""
        if b"\n" in self._buffer or self._closed:
            return True
        return bool(self._selector.select(wait_s)) or self.ended() is not None

    def receive(self, limit_s: float | None, since: float | None = None) -> Message | None:
        """Receive the next message, or ``None`` when the process ended without one.

        The limit runs from ``since`` (``time.monotonic()``), or from now.

        Raises:
            TimeLimitReached: nothing came for ``limit_s`` seconds (``None``: wait for ever).
            ValueError: the process sent something else.
        """
        deadline = None if limit_s is None else (time.monotonic() if since is None else since) + limit_s
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                return decode(bytes(line))
            if self._closed:
                return None
            left = _TICK_S if deadline is None else deadline - time.monotonic()
            if self._selector.select(max(0.0, min(_TICK_S, left))):
                chunk = os.read(self._read_end, 65536)
                self._buffer += chunk
                self._closed = not chunk
            elif self.ended() is not None:
                self._closed = True
            elif left <= 0:
                raise TimeLimitReached

    def next_message(self, limit_s: float | None, since: float | None = None) -> tuple[Message | None, str]:
        """Receive a message of a task that has not finished; or ``None``, and how the process was lost.

        A process that hangs writes its stacks.
        """
        try:
            message = self.receive(limit_s, since)
        except TimeLimitReached:
            self.ask_for_stacks()
            return None, f"timed out after {limit_s:g} s"
        except ValueError as error:
            return None, f"sent an invalid message ({error})"
        if message is None or isinstance(message, Done):
            return None, f"ended: {self.wait_ended() or 'its pipe was closed'}"
        return message, ""

    def ended(self) -> str | None:
        """Say how the process ended, such as ``killed by SIGABRT``; ``None`` while it lives. It stays a zombie until
        :meth:`end`, so that no other process can get its id, or its group's."""
        if self._ended is None and self._process.returncode is None:
            status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if status is not None:
                by_signal = status.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
                self._ended = _how(-status.si_status if by_signal else status.si_status)
        return self._ended

    def wait_ended(self, limit_s: float = _END_LIMIT_S) -> str | None:
        """Do as :meth:`ended`, after at most ``limit_s`` seconds: a pipe closes a moment before its process ends."""
        deadline = time.monotonic() + limit_s
        while self.ended() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return self._ended

    def ask_for_stacks(self, limit_s: float = _STACKS_LIMIT_S) -> None:
        """Make the living process write the stacks of all its threads to ``files.stacks``, and wait until it has."""
        before = _threads_that_block(STACKS_SIGNAL, self.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, STACKS_SIGNAL)
        deadline = time.monotonic() + limit_s
        while self.ended() is None and time.monotonic() < deadline:
            # The thread that writes them blocks the signal until it has written all.
            if self.files.stacks.stat().st_size and _threads_that_block(STACKS_SIGNAL, self.pid) <= before:
                return
            time.sleep(0.02)

    def end(self) -> None:
        """End the process and its process group, now."""
        if self._process.returncode is None:
            self.ended()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait(timeout=30)
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._selector.close()
        with contextlib.suppress(OSError):
            os.close(self._read_end)

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end()


def _threads_that_block(number: int, pid: int) -> set[str]:
    """Return the ids of the threads of a process in which a signal is blocked, as while it is handled."""
    found = set()
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):  # it has ended
            masks = re.findall(r"^SigBlk:\s*(\w+)$", (thread / "status").read_text(errors="replace"), re.MULTILINE)
            if any(int(mask, 16) >> (number - 1) & 1 for mask in masks):
                found.add(thread.name)
    return found


def _how(returncode: int) -> str:
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def _environment(files: WorkerFiles) -> dict[str, str]:
    """Keep Hypothesis's folder beside the log; by default it is in the user's working directory."""
    return {"HYPOTHESIS_STORAGE_DIRECTORY": str(files.log.parent / "hypothesis"), **os.environ}
