"""The main function of a worker process: reads its job from stdin, does it, and sends the results to its parent.

It never outlives its parent. Stdin is a pipe that the parent keeps open: its end means that the parent is gone, and
the process ends itself with everything that it started. If a thread holds Python's lock for ever, which hides this, a
timer without that lock ends the process at the job's limit.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import IO, TypeAlias

from harness.errors import HarnessError
from harness.extras import missing_extra
from harness.runner.job import Job
from harness.runner.messages import Done, Message, Refusal, Refused, encode

#: Sends a message to the parent.
Send: TypeAlias = Callable[[Message], None]
#: What a job's ``task`` names.
Task: TypeAlias = Callable[[dict[str, object], Send], None]

_told_to_go_on = threading.Event()
#: Makes the process write the stacks of all threads to its stacks file.
STACKS_SIGNAL = signal.SIGUSR1


def main() -> None:
    """Read the job, do it, and end."""
    job, alive = _take_job()
    threading.Thread(target=_end_with_parent, args=(alive,), name="harness-parent-watch", daemon=True).start()
    os.set_inheritable(job.events, False)
    stacks = open(job.stacks or os.devnull, "w")  # noqa: SIM115, PTH123 - faulthandler writes to it until the end
    faulthandler.enable(file=stacks, all_threads=True)
    faulthandler.register(STACKS_SIGNAL, file=stacks, all_threads=True)
    send = _sender(job, stacks)
    module, _, function = job.task.partition(":")
    task: Task = getattr(importlib.import_module(module), function)
    try:
        task(job.arguments, send)
    except Refusal as refusal:
        send(refusal.refused)
    except HarnessError as error:
        send(Refused(type(error).__name__, str(error)))
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        send(Refused(type(missing).__name__, str(missing)))
    send(Done())


def wait_for_parent() -> None:
    """Wait until the parent tells this process to go on, however long that takes."""
    faulthandler.cancel_dump_traceback_later()
    _told_to_go_on.wait()


def _take_job() -> tuple[Job, int]:
    """Return the job, and the descriptor that ends when the parent is gone. Stdin itself becomes empty."""
    alive = os.dup(0)
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(alive, 1)
        if not byte:
            sys.exit("no job: this process is started by the harness, not by hand")
        line += byte
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return Job.decode(bytes(line)), alive


def _end_with_parent(alive: int) -> None:
    while os.read(alive, 1):
        _told_to_go_on.set()
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _sender(job: Job, stacks: IO[str]) -> Send:
    """Return the function that sends messages; each one restarts the timer of last resort."""
    lock = threading.Lock()

    def send(message: Message) -> None:
        # The parent may end this process when it gets the message.
        sys.stdout.flush()
        sys.stderr.flush()
        if job.limit_s is not None:
            faulthandler.dump_traceback_later(job.limit_s, exit=True, file=stacks)
        data = encode(message)
        with lock:
            while data:
                data = data[os.write(job.events, data) :]

    if job.limit_s is not None:
        faulthandler.dump_traceback_later(job.limit_s, exit=True, file=stacks)
    return send
