"""Finds the forward op of each backward op while a tape is played back.

TensorFlow computes a gradient op by op: the ops that run while it asks for the gradient of one forward op are that
forward op's backward ops. Which forward op it is follows from its attributes: TensorFlow hands the very tuple that the
op ran with, or was recorded with in a graph, to its gradient function.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from harness.evidence.steps import RecordedOp

_IDENTITIES = frozenset({"Identity", "IdentityN"})


class _Stack(threading.local):
    """The forward ops whose gradients this thread is computing; ``None`` for what belongs to no single op."""

    def __init__(self) -> None:
        self.forwards: list[RecordedOp | None] = []


class Tapes:
    """Which op made a tensor, and which gradient is being computed."""

    def __init__(self) -> None:
        self.stack = _Stack()
        self.producer: dict[int, RecordedOp] = {}
        #: Ops by the identity of their attributes, which are kept so that no others get it.
        self.by_attributes: dict[int, tuple[Any, RecordedOp]] = {}

    def add(self, step: RecordedOp, attributes: Any = None) -> None:
        """An op ran, or was added to a graph."""
        for tensor_id in step.outputs:
            self.producer[tensor_id] = step
        if attributes:
            self.by_attributes[id(attributes)] = attributes, step

    def on_recorded(self, op_type: str, attributes: Any, outputs: Sequence[Any]) -> None:
        """A tape records an op, as in a graph."""
        step = self.producer.get(getattr(outputs[0], "_id", -1)) if attributes and len(outputs) else None
        # For a forward accumulator TensorFlow records an op anew, with stand-ins for its outputs.
        if step is not None and step.type == op_type:
            self.by_attributes[id(attributes)] = attributes, step

    def forward_of(self, attributes: Any) -> RecordedOp | None:
        """The op with these attributes, whose gradient TensorFlow asks for."""
        return self.by_attributes.get(id(attributes), (None, None))[1]

    def on_region(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> RecordedOp | None:
        """A custom gradient, or a call: its forward op is the one that made its first output.

        What it only hands through was made before it, and maybe elsewhere: the op that made it is behind an input too,
        and so is met more often. In a graph, inputs and outputs both hold results, arguments and variables.
        """
        given = [self.through_identities(getattr(tensor, "_id", -1)) for tensor in inputs]
        made = [self.through_identities(tensor._id) for tensor in outputs if hasattr(tensor, "_id")]
        steps = [step for step in made if step is not None and step.type != "ReadVariableOp"]
        met = Counter(id(step) for step in [*made, *given])
        return min(steps, key=lambda step: met[id(step)], default=None)

    def within(self, forward: RecordedOp | None, run: Callable[[], Any]) -> Any:
        """Run what computes the gradient of ``forward``, or of no single op: seeds, and sums of gradients."""
        self.stack.forwards.append(forward)
        try:
            return run()
        finally:
            self.stack.forwards.pop()

    def through_identities(self, tensor_id: int) -> RecordedOp | None:
        """The op that made a tensor; a custom gradient hands its tensors through an Identity or IdentityN."""
        step = self.producer.get(tensor_id)
        while step is not None and step.type in _IDENTITIES:
            source = step.inputs[step.outputs.index(tensor_id)]
            maker = self.producer.get(source)
            if maker is None:
                return step
            tensor_id, step = source, maker
        return step
