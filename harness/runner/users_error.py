"""Formats exceptions of the user's code, in one line and with the user's frames, and reports them to the parent."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import harness.runner
from harness.devices.lost import naming_hosts
from harness.errors import HarnessError
from harness.runner.messages import Refusal, Refused
from harness.runner.target import Target

#: TensorFlow puts the place in the user's code, and for a graph a long report, before the message itself.
PREAMBLES = ("in user code:", "Graph execution error:", "Detected at node", "Exception encountered when calling")
#: TensorFlow's marks for the place in a graph, the rest of a message about an unknown name, and Keras's bold type.
_MARKS = re.compile(r"\{\{[^{}]*\}\}\s*|\s+name:\s*$|\x1b\[[\d;]*m")
#: The line before the messages of a graph in which several ops failed.
_ROOTS = re.compile(r"\d+ root error")
#: Files outside all folders: Python's import machinery, and AutoGraph's version of the user's code.
_NOBODYS = ("<frozen importlib", "__autograph_generated_file")


@contextmanager
def users_code(target: Target) -> Iterator[None]:
    """Load or call the user's code in its body; an exception is reported to the parent.

    Raise Refusal if the user's code raised.
    """
    try:
        yield
    except (Exception, SystemExit) as error:  # the user's code may raise anything, and the parent must hear of it
        message = refused(target, error)
        if message is None:
            raise
        raise Refusal(message) from error


def refused(target: Target, error: BaseException) -> Refused | None:
    """Describe ``error``, raised while ``target`` was loaded or called; ``None`` if the harness raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, HarnessError) and not any(Path(frame.filename) == target.path for frame in frames):
        return None
    ours = [Path(folder).parent for folder in harness.runner.__path__]
    libraries = [sys.modules[name].__file__ for name in ("tensorflow", "keras") if name in sys.modules]
    hidden = [*ours, *(Path(file).parent for file in libraries if file)]
    what = naming_hosts(one_line(error), error)
    return Refused(type(error).__name__, f"{target} raised {what}", frames_without(error, hidden))


def one_line(error: BaseException) -> str:
    """Write the type, message and notes of ``error`` as one line."""
    headline = ": ".join([type(error).__name__, *message_lines(error)[:1]])
    notes = "; ".join(" ".join(str(note).split()) for note in getattr(error, "__notes__", ()))
    return f"{headline} ({notes})" if notes else headline


def message_lines(error: BaseException) -> list[str]:
    """The lines of an exception's own message, without the place that TensorFlow puts before it."""
    kind = type(error).__name__
    lines = [line for text in str(error).splitlines() if (line := _MARKS.sub("", text).strip())]
    if lines and lines[0].startswith(PREAMBLES):
        # The message follows the last line with its type, or the user's frames.
        own = [number for number, line in enumerate(lines) if line.startswith(f"{kind}: ")]
        frames = [number for number, line in enumerate(lines) if line.startswith('File "')]
        if own:
            lines = [lines[own[-1]].removeprefix(f"{kind}: "), *lines[own[-1] + 1 :]]
        elif frames:
            lines = lines[frames[-1] + 1 :] or lines
    while len(lines) > 1 and (lines[0].startswith(PREAMBLES) or _ROOTS.match(lines[0])):
        lines = lines[1:]
    return lines


def frames_without(error: BaseException, folders: Iterable[Path]) -> str:
    """Write the traceback of ``error`` as Python prints it, without frames in ``folders`` and in generated code."""
    hidden = tuple(f"{folder}/" for folder in folders)
    stack = traceback.extract_tb(error.__traceback__)
    own = [
        frame
        for frame in stack
        if not frame.filename.startswith(hidden) and not any(mark in frame.filename for mark in _NOBODYS)
    ]
    head = ["Traceback (most recent call last):\n"] if own else []
    return "".join([*head, *traceback.format_list(own), *traceback.format_exception_only(error)])
