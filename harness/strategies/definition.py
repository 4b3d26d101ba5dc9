"""What a program consists of, as plain data: arguments, variables, steps and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import InvalidProgram
from harness.plural import plural
from harness.strategies.dtypes import DTYPES, EXACT_LIMIT, is_float
from harness.strategies.parts import Argument, Variable, pack
from harness.strategies.steps.step import Compact, Step, Types, Value

#: The largest integer weight of an output in a projection whose gradients are still exact.
PROJECTION_LIMIT = 2


@dataclass(frozen=True, repr=False)
class Definition(Compact):
    """What a :class:`~harness.strategies.program.Program` consists of, and whether it fits together."""

    arguments: tuple[Argument, ...]
    variables: tuple[Variable, ...]
    steps: tuple[Step, ...]
    outputs: tuple[tuple[str, str], ...]
    dtype: str = "float32"
    axis: int = 0
    rows: int = 1
    seed: int = 0
    exact: bool = False
    traced: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise InvalidProgram("program", f"dtype={self.dtype!r}", ", ".join(DTYPES))
        if not self.outputs or not any(not argument.broadcast for argument in self.arguments):
            raise InvalidProgram("program", "no argument with a batch axis, or no output", "at least one of each")
        self._require_rows(self.rows)
        for path, name in self.outputs:
            value = self.types.get(name)
            if value is None or not value.batched:
                raise InvalidProgram(
                    f"output {path!r}",
                    f"{name!r} is not a value of the batch",
                    "an argument or a step with the batch axis",
                )
        placed = [(a.name, a.shape) for a in self.arguments if not a.broadcast]
        placed += [(f"output {path!r}", self.types[name].shape) for path, name in self.outputs]
        for place, shape in placed:
            if not -len(shape) - 1 <= self.axis <= len(shape):
                needed = self.axis if self.axis >= 0 else -self.axis - 1
                why = f"shape {shape}, without the batch axis, has too few axes for axis={self.axis}"
                raise InvalidProgram(place, why, f"{needed} or more axes besides the batch axis")
        self.pack_arguments({argument.name: None for argument in self.arguments})
        pack(self.outputs)

    @cached_property
    def types(self) -> dict[str, Value]:
        """The properties of each value, by name."""
        types: dict[str, Value] = {}
        parts: tuple[Argument | Variable, ...] = (*self.arguments, *self.variables)
        for part in parts:
            if part.name in types:
                raise InvalidProgram(
                    repr(part), "the name is used twice", "a different name for each argument and variable"
                )
            types[part.name] = part.value(self.dtype, exact=self.exact)
        for index, step in enumerate(self.steps):
            types[f"v{index}"] = infer(step, types, exact=self.exact)
        return types

    @property
    def broadcast(self) -> tuple[str, ...]:
        """The arguments that are not split, as ``make_parallel(broadcast=...)`` takes them."""
        return tuple(dict.fromkeys(a.name.partition(".")[0] for a in self.arguments if a.broadcast))

    @property
    def differentiable(self) -> bool:
        """Whether the program has gradients."""
        return is_float(self.dtype)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its steps, in order."""
        return tuple(step.KIND for step in self.steps)

    def inputs(self, rows: int | None = None, seed: int | None = None) -> dict[str, Any]:
        """Make NumPy arrays for the arguments, in nests, with ``rows`` along the batch axis: the same every time.

        Raise InvalidProgram if ``rows`` is negative, 0 with a step that needs rows, or too large for an exact program.
        """
        rows, seed = self.rows if rows is None else rows, self.seed if seed is None else seed
        self._require_rows(rows)
        arrays: dict[str, NDArray[Any]] = {}
        for argument in self.arguments:
            array = argument.array(rows, seed, self.dtype, exact=self.exact)
            arrays[argument.name] = (
                array if argument.broadcast else np.ascontiguousarray(np.moveaxis(array, 0, self.axis))
            )
        return self.pack_arguments(arrays)

    def pack_arguments(self, leaves: dict[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments, from leaves by path."""
        packed = pack([*leaves.items(), ("*", None)])  # the mark keeps a single "0" from becoming a tuple
        packed.pop("*")
        if not all(name.isidentifier() for name in packed):
            raise InvalidProgram("program", f"argument names {', '.join(packed)}", "Python identifiers")
        return dict(packed)

    def _require_rows(self, rows: int) -> None:
        if rows < 0:
            raise InvalidProgram("program", f"rows={rows}", "0 or more")
        for step in self.steps:
            step.require(rows > 0 or not step.needs_rows, "rows=0", "1 or more, because oneDNN fails on 0 rows")
        if self.exact or not self.differentiable:
            names = [name for _, name in self.outputs if name in self.types]
            found = largest_magnitude(self.types, self.steps, names, rows)
            limit = EXACT_LIMIT[self.dtype]
            if found > limit:
                why = f"values or gradients up to {found:,.0f} with {plural(rows, 'row')} are not exact in {self.dtype}"
                raise InvalidProgram("program", why, f"integers up to {limit:,}")


def infer(step: Step, types: dict[str, Value], *, exact: bool) -> Value:
    """Return the properties of a step's result, given those of earlier values.

    Raise InvalidProgram if a name is unknown, or the operands do not fit the step.
    """
    for name in step.reads:
        if name not in types:
            step.fault(f"{name!r} is not known", "an argument, a variable or an earlier value: " + ", ".join(types))
    first = step.reads[0]
    step.require(types[first].batched, f"{first!r} has no batch axis", "an argument or a step with the batch axis")
    value = step.infer(types)
    return replace(value, stable=exact or not is_float(value.dtype))


def gradient_bounds(types: Types, steps: Sequence[Step], outputs: Sequence[str], rows: int) -> dict[str, float]:
    """Return the largest magnitude of the gradient of each value, for integer weights up to :data:`PROJECTION_LIMIT`.

    ``outputs`` are the names of the outputs; step ``i`` makes the value ``v<i>``. Magnitudes are added up, so that the
    bound holds for every partial sum in any order. Raise InvalidProgram if a step is not exact.
    """
    bounds = dict.fromkeys(types, 0.0)
    for name in outputs:
        bounds[name] += PROJECTION_LIMIT if is_float(types[name].dtype) else 0
    for index in range(len(steps) - 1, -1, -1):
        step = steps[index]
        edges = step.edges(types)
        if edges is None:
            step.fault("this step is not exact for integers", "exact steps, or a float dtype with exact=False")
        for edge in edges:
            repeats = 1 if types[edge.name].batched else max(rows, 1)
            bounds[edge.name] += edge.fan * edge.gain * bounds[f"v{index}"] * repeats
    return bounds


def largest_magnitude(types: Types, steps: Sequence[Step], outputs: Sequence[str], rows: int) -> float:
    """Return the largest magnitude of any value or gradient of a program with integer arithmetic.

    Raise InvalidProgram if a step is not exact.
    """
    gradients = gradient_bounds(types, steps, outputs, rows)
    return max(*(value.bound for value in types.values()), *gradients.values())
