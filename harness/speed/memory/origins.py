"""Where in the program variables and tensors are made, noted while it is loaded and warmed up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from harness._tensorflow import constants_made, op_callback
from harness.evidence.places import place_of_call


@dataclass
class Origins:
    """The lines that made eager tensors and the handles of variables, by the tensor's id."""

    lines: dict[int, str] = field(default_factory=dict)

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

    def _note(self, tensor: Any) -> None:
        if (line := place_of_call()) is not None:
            self.lines[tensor._id] = line
