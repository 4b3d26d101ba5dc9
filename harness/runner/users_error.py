"""Reports what the user's code raised to the parent: one line, and the user's frames below it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import harness.runner
from harness.devices.lost import naming_hosts
from harness.errors import HarnessError
from harness.runner.exception_text import frames_without, one_line
from harness.runner.messages import Refusal, Refused
from harness.runner.target import Target


@contextmanager
def users_code(target: Target) -> Iterator[None]:
    """Within it the user's code is loaded or called; what that raises is reported to the parent.

    Raises:
        Refusal: the user's code raised.
    """
    try:
        yield
    except (Exception, SystemExit) as error:  # the user's code may raise anything, and the parent must hear of it
        told = refused(target, error)
        if told is None:
            raise
        raise Refusal(told) from error


def refused(target: Target, error: BaseException) -> Refused | None:
    """What to tell of ``error``, raised while ``target`` was loaded or called; ``None`` where the harness raised it."""
    if isinstance(error, HarnessError) and not _passed_through(error, target.path):
        return None
    what = naming_hosts(one_line(error), error)
    return Refused(type(error).__name__, f"{target} raised {what}", _users_frames(error))


def _passed_through(error: BaseException, path: Path) -> bool:
    """Whether a frame of the file at ``path`` is in the traceback: then the error is the user's."""
    return any(Path(frame.filename) == path for frame in traceback.extract_tb(error.__traceback__))


def _users_frames(error: BaseException) -> str:
    ours = [Path(folder).parent for folder in harness.runner.__path__]
    libraries = [sys.modules[name].__file__ for name in ("tensorflow", "keras") if name in sys.modules]
    return frames_without(error, [*ours, *(Path(file).parent for file in libraries if file)])
