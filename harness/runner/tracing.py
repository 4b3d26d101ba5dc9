"""The task of a worker process that traces a function of the user's."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

import harness.runner
from harness.checks.exception_text import frames_without, one_line
from harness.errors import HarnessError
from harness.runner.messages import Answer, Refused
from harness.runner.target import Target

if TYPE_CHECKING:
    from harness.runner.worker import Send


@dataclass(frozen=True)
class Arguments:
    """The task's arguments: a device spec, the function's file and name, where to save the trace. Absolute paths."""

    spec: str
    file: str
    function: str
    save: str


def run(arguments: dict[str, object], send: Send) -> None:
    """Configure the devices, load the function, trace one call of it, and save the trace."""
    from harness.devices.runtime import configure
    from harness.evidence.trace import trace

    asked = TypeAdapter(Arguments).validate_python(arguments)
    target = Target(Path(asked.file), asked.function)
    configure(asked.spec)
    try:
        made = trace(target.load())
    except (Exception, SystemExit) as error:  # the user's code may raise anything, and the parent must hear of it
        if isinstance(error, HarnessError) and not _passed_through(error, target.path):
            raise
        send(Refused(type(error).__name__, f"{target} raised {one_line(error)}", _users_frames(error)))
        return
    made.save(Path(asked.save))
    send(Answer({"ops": len(made.ops)}))


def _passed_through(error: BaseException, path: Path) -> bool:
    """Whether a frame of the file at ``path`` is in the traceback: then the error is the user's."""
    return any(Path(frame.filename) == path for frame in traceback.extract_tb(error.__traceback__))


def _users_frames(error: BaseException) -> str:
    ours = [Path(folder).parent for folder in harness.runner.__path__]
    libraries = [sys.modules[name].__file__ for name in ("tensorflow", "keras") if name in sys.modules]
    return frames_without(error, [*ours, *(Path(file).parent for file in libraries if file)])
