"""The job of a worker process, the files that it writes, and tasks with typed arguments."""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import ReportError


@dataclass(frozen=True, slots=True)
class Job:
    """One task for a process of its own.

    ``task`` is ``module:function``; the function is called with ``arguments`` (a JSON object) and a function that
    sends messages. ``limit_s`` is how long the process lives without sending a message, even if a thread holds Python's
    lock and so hides that the parent is gone.
    """

    task: str
    arguments: dict[str, object] = field(default_factory=dict)
    limit_s: float | None = None
    stacks: str | None = None
    events: int = -1

    def encode(self) -> bytes:
        """Write the job as one line."""
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Job:
        """Read the job that ``line`` holds."""
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True)
class WorkerFiles:
    """The files of one worker process: ``log`` takes its output, ``stacks`` the Python stacks when it dies or hangs."""

    log: Path
    stacks: Path

    @classmethod
    def create(cls, folder: Path, name: str) -> WorkerFiles:
        """Make the two files, empty, in ``folder``; where that cannot be written, in a temporary folder.

        Raise ReportError if neither can be written.
        """
        try:
            return cls._create(folder, name)
        except OSError as error:
            try:
                return cls._create(Path(tempfile.mkdtemp(prefix="harness-logs-")), name)
            except OSError:
                raise ReportError(folder, error.strerror or str(error)) from error

    @classmethod
    def _create(cls, folder: Path, name: str) -> WorkerFiles:
        folder.mkdir(parents=True, exist_ok=True)
        files = cls(folder / f"{name}.log", folder / f"{name}.stacks")
        for path in (files.log, files.stacks):
            path.write_bytes(b"")
        return files

    def discard_empty(self) -> None:
        """Remove the stacks file when nothing went wrong."""
        if self.stacks.exists() and self.stacks.stat().st_size == 0:
            self.stacks.unlink()


def typed_task(function: Callable[..., None]) -> Callable[[dict[str, object], Callable[..., None]], None]:
    """Make a task of ``function(send, **arguments)``, whose arguments are validated by their annotations."""

    @functools.wraps(function)
    def task(arguments: dict[str, object], send: Callable[..., None]) -> None:
        from pydantic import validate_call

        validate_call(function)(send, **arguments)

    return task
