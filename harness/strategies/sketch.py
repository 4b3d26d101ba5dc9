"""A program while it is drawn: its parts so far, and whether one more step keeps it small and well conditioned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from harness.errors import InvalidProgram
from harness.strategies.definition import infer, largest_magnitude
from harness.strategies.dtypes import EXACT_LIMIT, is_float
from harness.strategies.parts import Argument, Variable
from harness.strategies.steps.step import Step, Value

T = TypeVar("T")

#: Feature sizes: small, so that thousands of programs are affordable; an axis of size 1 would hide faults.
SIZES = range(2, 10)
_SMALL = 6
#: Most elements in a row of any value.
_LARGEST_ROW = 96
#: The largest magnitude of an inexact value, which keeps gradients far below the limit of float16 (65504).
_LARGEST_VALUE = 32.0
_MOST_ARGUMENTS = 4
_MOST_BROADCAST = 2


class Sketch:
    """The parts drawn so far: arguments ``a0`` …, variables ``w0`` …, results of steps ``v0`` …"""

    def __init__(self, draw: DrawFn, dtype: str, axis: int, rows: int, *, exact: bool) -> None:
        self.draw = draw
        self.dtype = dtype
        self.axis = axis
        self.rows = rows
        self.exact = exact
        self.arguments: list[Argument] = []
        self.variables: list[Variable] = []
        self.steps: list[Step] = []
        self.types: dict[str, Value] = {}

    @property
    def differentiable(self) -> bool:
        """Whether gradients flow."""
        return is_float(self.dtype)

    def choose(self, options: Sequence[T]) -> T:
        """Draw one of the options; examples shrink towards the first."""
        return self.draw(st.sampled_from(options))

    def maybe(self) -> bool:
        """Draw yes or no; examples shrink towards no."""
        return self.draw(st.booleans())

    def size(self, *others: int) -> int:
        """Draw a size for a new axis that differs from the batch's and from ``others``."""
        return self.choose([size for size in SIZES if size != self.rows and size not in others])

    def shape(self, rank: int) -> tuple[int, ...]:
        """Draw a shape of features in which all sizes differ; with 3 axes all are small."""
        allowed = [size for size in SIZES if size != self.rows and (rank < 3 or size < _SMALL)]
        sizes: list[int] = []
        for _ in range(rank):
            sizes.append(self.choose([size for size in allowed if size not in sizes]))
        return tuple(sizes)

    def values(self, fits: Callable[[Value], bool] = lambda _: True) -> list[str]:
        """Values of the batch and of the program's type that fit, the newest first, so that programs grow deep."""
        found = [
            n for n, v in self.types.items() if v.batched and v.dtype == self.dtype and v.below is None and fits(v)
        ]
        return found[::-1]

    def indices(self, limit: int | None = None) -> list[str]:
        """Values that count from 0 and stay below ``limit``, the newest first."""
        counts = [(name, value.below) for name, value in self.types.items() if value.batched and value.below]
        return [name for name, below in counts if limit is None or below <= limit][::-1]

    def parameters(self, fits: Callable[[Value], bool]) -> list[str]:
        """Variables and broadcast arguments that fit."""
        return [name for name, value in self.types.items() if not value.batched and fits(value)]

    def room(self) -> bool:
        """Whether one more split argument is allowed."""
        return sum(not argument.broadcast for argument in self.arguments) < _MOST_ARGUMENTS

    def argument(
        self, shape: tuple[int, ...], dtype: str | None = None, below: int | None = None, *, broadcast: bool = False
    ) -> str:
        """Add an argument."""
        argument = Argument(f"a{len(self.arguments)}", shape, dtype, below, broadcast)
        self.arguments.append(argument)
        self.types[argument.name] = argument.value(self.dtype, exact=self.exact)
        return argument.name

    def parameter(self, shape: tuple[int, ...], init: str) -> str:
        """Draw a variable of that shape, existing or new, or a broadcast argument."""
        shared = self.parameters(lambda value: value.shape == shape)
        if shared and self.maybe():
            return self.choose(shared)
        spare = sum(argument.broadcast for argument in self.arguments) < _MOST_BROADCAST
        if spare and self.choose([False, False, False, False, True]):
            return self.argument(shape, broadcast=True)
        variable = Variable(f"w{len(self.variables)}", shape, init)
        self.variables.append(variable)
        self.types[variable.name] = variable.value(self.dtype, exact=self.exact)
        return variable.name

    def index(self, limit: int) -> str | None:
        """Draw integers from 0 to ``limit - 1``: an existing value, or a new argument."""
        known = self.indices(limit)
        if known and (not self.room() or self.maybe()):
            return self.choose(known)
        if not self.room():
            return None
        rank = self.choose([0, 1] if self.axis == 0 else [1])
        return self.argument(self.shape(rank), self.choose(["int32", "int64"]), limit)

    def partner(self, shape: tuple[int, ...], *but: str) -> str | None:
        """Draw another value of that shape: an existing one, or a new argument."""
        known = [name for name in self.values(lambda value: value.shape == shape) if name not in but]
        if known and (not self.room() or len(shape) < self.axis or not self.maybe()):
            return self.choose(known)
        return self.argument(shape) if self.room() and len(shape) >= self.axis else None

    def add(self, step: Step | None) -> None:
        """Add the step, unless it would make the program square, large or badly conditioned."""
        if step is None or (step.needs_rows and not self.rows):
            return
        value = infer(step, self.types, exact=self.exact)
        sizes = (self.rows, *value.shape)
        if len(set(sizes)) < len(sizes) or min(value.shape, default=2) < 2 or value.size > _LARGEST_ROW:
            return
        if not self.exact and self.differentiable and value.bound > _LARGEST_VALUE and value.below is None:
            return
        name = f"v{len(self.steps)}"
        self.steps.append(step)
        self.types[name] = value
        if (self.exact or not self.differentiable) and not self.stays_exact([name]):
            self.steps.pop()
            del self.types[name]

    def stays_exact(self, outputs: Sequence[str]) -> bool:
        """Whether all values and gradients of these outputs are exact integers."""
        try:
            return largest_magnitude(self.types, self.steps, outputs, self.rows) <= EXACT_LIMIT[self.dtype]
        except InvalidProgram:
            return False
