"""Formats exceptions of the user's code: as one line, and with only the user's frames."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from pathlib import Path

#: TensorFlow puts the place in the user's code, and for a graph the whole story, before the message itself.
_PREAMBLES = ("in user code:", "Graph execution error:", "Detected at node", "Exception encountered when calling")
#: TensorFlow's marks for the place in a graph, and what it leaves behind a message for a name that there is not.
_MARKS = re.compile(r"\{\{[^{}]*\}\}\s*|\s+name:\s*$")
#: What stands before the messages of a graph in which several ops failed.
_ROOTS = re.compile(r"\d+ root error")
#: Files of no folder: Python's import machinery, and the code that AutoGraph makes of the user's.
_NOBODYS = ("<frozen importlib", "__autograph_generated_file")


def one_line(error: BaseException) -> str:
    """The type and the message of ``error`` as one line, with the notes that were added to it."""
    notes = "; ".join(" ".join(str(note).split()) for note in getattr(error, "__notes__", ()))
    return f"{_headline(error)} ({notes})" if notes else _headline(error)


def _headline(error: BaseException) -> str:
    kind = type(error).__name__
    lines = [line for text in str(error).splitlines() if (line := _MARKS.sub("", text).strip())]
    if not lines:
        return kind
    if lines[0].startswith(_PREAMBLES):
        # The message follows the last line with its type, or the user's frames.
        own = [number for number, line in enumerate(lines) if line.startswith(f"{kind}: ")]
        frames = [number for number, line in enumerate(lines) if line.startswith('File "')]
        if own:
            lines = [lines[own[-1]].removeprefix(f"{kind}: "), *lines[own[-1] + 1 :]]
        elif frames:
            lines = lines[frames[-1] + 1 :] or lines
    while len(lines) > 1 and (lines[0].startswith(_PREAMBLES) or _ROOTS.match(lines[0])):
        lines = lines[1:]
    return f"{kind}: {lines[0]}"


def frames_without(error: BaseException, folders: Iterable[Path]) -> str:
    """The traceback of ``error`` as Python prints it, without frames in ``folders`` and in code that nobody wrote."""
    hidden = tuple(f"{folder}/" for folder in folders)
    stack = traceback.extract_tb(error.__traceback__)
    own = [
        frame
        for frame in stack
        if not frame.filename.startswith(hidden) and not any(mark in frame.filename for mark in _NOBODYS)
    ]
    head = ["Traceback (most recent call last):\n"] if own else []
    return "".join([*head, *traceback.format_list(own), *traceback.format_exception_only(error)])
