"""The ops of an eager run, each with the lines that led to it, what it read and what it made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness._tensorflow import op_callback
from harness.evidence.places import places_of_call
from harness.judgement.arithmetic import MOVEMENT
from harness.judgement.diagnosis.observed import eager_functions
from harness.judgement.diagnosis.question import Array, Question
from harness.judgement.runs import Program
from harness.judgement.tolerance import epsilon_of

#: Ops that only move data.
MOVES = MOVEMENT | {
    *("Transpose", "ConjugateTranspose", "GatherV2", "GatherNd", "ReverseV2", "Roll", "Where"),
    *("DynamicPartition", "DynamicStitch", "ParallelDynamicStitch"),
}
#: What both programs start from.
GIVEN = frozenset({"Const", "ReadVariableOp", "VarHandleOp"})
#: What TensorFlow calls a traced function.
_FUNCTION = re.compile(r"^__(?:inference|forward)_(.+)_\d+$")
#: Of larger programs, the first results alone are kept.
_MOST_BYTES = 2**27
#: Units in the last place, of the largest element, by which equal results may differ.
_ULPS = 256.0


@dataclass(frozen=True, eq=False)
class Step:
    """One op. ``places`` are the lines of the user's program that led to it, the innermost first.

    ``inputs`` and ``outputs`` are the ids of tensors; ``results`` the values of the outputs: of numbers and booleans,
    as far as there was room.
    """

    kind: str
    places: tuple[str, ...]
    device: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    results: tuple[Array | None, ...]

    @property
    def place(self) -> str | None:
        """The innermost line."""
        return self.places[0] if self.places else None

    @property
    def result(self) -> Array | None:
        """The first result, where it is a floating one."""
        first = self.results[0] if self.results else None
        return first if first is not None and epsilon_of(first.dtype) else None

    @property
    def computes(self) -> bool:
        """Whether it makes floating numbers from others."""
        return self.kind not in MOVEMENT | GIVEN and self.result is not None


@contextmanager
def recording() -> Iterator[list[Step]]:
    """Record the eager ops of the body."""
    steps: list[Step] = []
    room = _MOST_BYTES

    def value(tensor: Any) -> Array | None:
        nonlocal room
        if room < 0 or tensor.dtype.name in ("resource", "string", "variant"):
            return None
        array = np.asarray(tensor.numpy())
        room -= array.nbytes
        return array

    def on_op(kind: str, inputs: Any, _: Any, outputs: Any, graph: Any) -> None:
        if graph is not None or not all(hasattr(each, "_id") for each in (*inputs, *outputs)):
            return
        names = tuple(each._id for each in inputs), tuple(each._id for each in outputs)
        device = outputs[0].device if outputs else ""
        steps.append(
            Step(
                _FUNCTION.sub(r"tf.function \1", kind), places_of_call(None), device, *names, tuple(map(value, outputs))
            )
        )

    with eager_functions(), op_callback(on_op):
        yield steps


def run_recorded(question: Question, program: Program) -> tuple[list[Step], Any]:
    """The ops of a run from the state before the call, with no gradients, and what it returned."""
    plain = Program(program.fn, program.inputs, program.variables, False, program.seed, program.scope)
    question.snapshot.restore()
    try:
        with recording() as steps:
            outputs, _ = plain.step(*plain.leaves())
    finally:
        question.snapshot.restore()
    return steps, outputs


def named(step: Step) -> str:
    """Its type and its line."""
    return f"{step.kind} ({step.place})" if step.place else step.kind


def steps_of(question: Question, program: Program) -> list[Step]:
    """The ops of such a run."""
    return run_recorded(question, program)[0]


def epsilon_of_tensor(tensor: Any) -> float:
    """The epsilon of a floating tensor that has a value here, or 0.0."""
    floating = tensor.dtype.is_floating or tensor.dtype.is_complex
    return epsilon_of(tensor.dtype.as_numpy_dtype) if floating else 0.0


def equal(one: Array, other: Array) -> bool:
    """Whether two results are the same: floating numbers but for rounding, all others exactly."""
    return one.shape == other.shape and one.dtype == other.dtype and bool(np.all(close(one, other)))


def close(one: Array, other: Array) -> Any:
    """The same for each element of two arrays of one dtype that broadcast; the scale is that of ``other``."""
    epsilon = epsilon_of(one.dtype)
    if not epsilon:
        return one == other
    wide = np.complex128 if np.iscomplexobj(one) else np.float64
    have, want = one.astype(wide), other.astype(wide)
    scale = float(np.max(np.abs(want), initial=0.0, where=np.isfinite(want)))
    return np.isclose(have, want, rtol=0.0, atol=_ULPS * epsilon * scale, equal_nan=True)
