"""Where in the program variables and tensors are made, noted while it is loaded and warmed up."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from harness._tensorflow import constants_made, op_callback
from harness.evidence.places import in_users, module_of, place

#: Code that AutoGraph makes of a function of the user's.
_CONVERTED = "__autograph_generated_file"


@dataclass
class Origins:
    """The lines that made eager tensors and the handles of variables, by the tensor's id.

    A function may make variables while it is traced. Its frames are then those of AutoGraph, and TensorFlow knows the
    lines that they stand for: those of the next node of its graph, which initialises the variable.
    """

    lines: dict[int, str] = field(default_factory=dict)
    _waiting: list[int] = field(default_factory=list)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note what this thread makes in the body."""
        with op_callback(self._on_op), constants_made(self._note):
            yield

    def line_of(self, thing: Any) -> str:
        """The line that made a tensor or variable; empty where that was not seen."""
        return self.lines.get(getattr(getattr(thing, "_handle", thing), "_id", -1), "")

    def _on_op(self, op_type: str, inputs: Any, attributes: Any, outputs: Any, graph: Any) -> None:  # noqa: ARG002
        if graph is None:
            for each in outputs:
                self._note(each)
        elif self._waiting and outputs:
            self._found(outputs[0].op.traceback)

    def _note(self, tensor: Any) -> None:
        frame = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if _CONVERTED in file:
                self._waiting.append(tensor._id)
                return
            if in_users(str(frame.f_globals.get("__name__", "")), file):
                self.lines[tensor._id] = place(file, frame.f_lineno)
                return
            frame = frame.f_back  # type: ignore[assignment]

    def _found(self, frames: Iterable[Any]) -> None:
        """Give what waits the innermost of these lines that is the user's."""
        for frame in reversed(list(frames)):
            if in_users(module_of(frame.filename), frame.filename):
                self.lines |= dict.fromkeys(self._waiting, place(frame.filename, frame.lineno))
                self._waiting.clear()
                return
