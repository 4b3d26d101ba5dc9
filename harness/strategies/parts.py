"""The arguments and variables of a program, and their values, which are the same with every version of NumPy.

NumPy guarantees the raw streams of PCG64 and SeedSequence, but not those of ``Generator``. So the values are made from
the raw stream, and a printed program keeps its arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any, TypeVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from harness.errors import InvalidProgram, UsageError
from harness.strategies.dtypes import is_float, numpy_dtype
from harness.strategies.steps.step import Compact, Value

#: The largest integers in the batches and weights of exact programs: small, to leave room for sums of products.
_EXACT_DATA = {"bfloat16": 2, "float16": 3}
_EXACT_WEIGHT = {"bfloat16": 1, "float16": 2}
Leaf = TypeVar("Leaf")


@dataclass(frozen=True, repr=False)
class Argument(Compact):
    """An argument of a program, or a leaf of one: ``name`` is its path, such as ``"x"`` or ``"pair.0"``.

    ``shape`` leaves out the batch axis, which ``broadcast`` arguments do not have. ``dtype`` is the program's unless
    it is given. With ``below`` the values are integers that count from 0; type ``bool`` makes a mask.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str | None = None
    below: int | None = None
    broadcast: bool = False

    def value(self, dtype: str, *, exact: bool) -> Value:
        """The properties of the argument in a program of that type."""
        own = self.dtype or dtype
        if self.below is not None and (is_float(own) or self.below < 1):
            raise InvalidProgram(repr(self), f"below={self.below} for {own}", "an integer dtype, and below=1 or more")
        if self.below is not None:
            bound: float = self.below - 1
        elif own == "bool":
            bound = 1
        elif exact or not is_float(own):
            bound = (_EXACT_WEIGHT if self.broadcast else _EXACT_DATA).get(own, 3 if self.broadcast else 8)
        else:
            bound = 1.0 if self.broadcast else 2.0
        return Value(self.shape, own, bound, batched=not self.broadcast, stable=True, below=self.below)

    def array(self, rows: int, seed: int, dtype: str, *, exact: bool) -> NDArray[Any]:
        """The values, batch axis first: ``(rows, *shape)``, or ``shape`` for a broadcast argument."""
        known = self.value(dtype, exact=exact)
        shape = (rows, *self.shape) if known.batched else self.shape
        if self.below is not None:
            array: NDArray[Any] = integers(seed, self.name, shape, self.below)
        elif known.dtype == "bool":
            array = integers(seed, self.name, shape, 2)
        elif exact or not is_float(known.dtype):
            array = _whole(seed, self.name, shape, int(known.bound))
        else:
            array = uniform(seed, self.name, shape) * known.bound
        return array.astype(numpy_dtype(known.dtype))


#: The purpose of a variable, which decides how large its values are.
INITS = ("weight", "bias", "gain", "table")


@dataclass(frozen=True, repr=False)
class Variable(Compact):
    """A variable of a program, of the program's type. ``init`` is one of :data:`INITS`."""

    name: str
    shape: tuple[int, ...]
    init: str = "weight"

    def value(self, dtype: str, *, exact: bool) -> Value:
        """The properties of the variable in a program of that type."""
        if self.init not in INITS:
            raise InvalidProgram(repr(self), f"init={self.init!r}", ", ".join(INITS))
        if exact or not is_float(dtype):
            bound: float = _EXACT_WEIGHT.get(dtype, 3)
        else:
            # 1/sqrt(fan-in) keeps the output of a layer as large as its input.
            fan_in = max(prod(self.shape[:-1]), 1)
            bound = {"weight": 1 / sqrt(fan_in), "bias": 0.5, "gain": 1.5, "table": 1.0}[self.init]
        return Value(self.shape, dtype, bound, batched=False, stable=True)

    def array(self, seed: int, dtype: str, *, exact: bool) -> NDArray[Any]:
        """The values, in the variable's shape."""
        bound = self.value(dtype, exact=exact).bound
        if exact or not is_float(dtype):
            array: NDArray[Any] = _whole(seed, self.name, self.shape, int(bound))
        elif self.init == "gain":
            array = 1 + uniform(seed, self.name, self.shape) / 2
        else:
            array = uniform(seed, self.name, self.shape) * bound
        return array.astype(numpy_dtype(dtype))


def _whole(seed: int, name: str, shape: tuple[int, ...], limit: int) -> NDArray[np.int64]:
    """Integers from ``-limit`` to ``limit`` without 0, which would hide its factors."""
    array = integers(seed, name, shape, 2 * limit)
    return np.where(array < limit, array - limit, array - limit + 1)


def uniform(seed: int, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Float64 numbers in [-1, 1) with at most 24 significant bits, so that float32 holds them exactly."""
    numbers: NDArray[np.float64] = (_raw(seed, name, shape) >> np.uint64(40)).astype(np.float64)
    return numbers * 2.0**-23 - 1.0


def integers(seed: int, name: str, shape: tuple[int, ...], below: int) -> NDArray[np.int64]:
    """Int64 numbers from 0 to ``below - 1``."""
    numbers: NDArray[np.int64] = (_raw(seed, name, shape) >> np.uint64(33)).astype(np.int64)
    return numbers % below


def _raw(seed: int, name: str, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    # The stream is read in order, so a longer array begins with the rows of a shorter one.
    stream = np.random.PCG64(np.random.SeedSequence([seed, crc32(name.encode())]))
    return np.asarray(stream.random_raw(prod(shape)), dtype=np.uint64).reshape(shape)


def pack(leaves: Iterable[tuple[str, Leaf]]) -> Any:
    """Return the nest with leaves at these paths; the empty path is a single leaf.

    Raise UsageError if two leaves claim the same place, or the numbers of a tuple are not 0, 1, 2 ….
    """
    items = list(leaves)
    if [path for path, _ in items] == [""]:
        return items[0][1]
    branches: dict[str, list[tuple[str, Leaf]]] = {}
    for path, leaf in items:
        head, _, rest = path.partition(".")
        branches.setdefault(head, []).append((rest, leaf))
    for head, inner in branches.items():
        if not head or (len(inner) > 1 and any(not rest for rest, _ in inner)):
            paths = ", ".join(repr(path) for path, _ in items)
            raise UsageError(
                f"paths {paths}: two of them claim the same place; accepted: different paths, none of which continues "
                "another, as 'a.b' continues 'a'"
            )
    if all(head.isdecimal() for head in branches):
        if sorted(branches, key=int) != [str(index) for index in range(len(branches))]:
            raise UsageError(f"paths with the numbers {', '.join(branches)}; accepted: consecutive numbers from 0 on")
        return tuple(pack(branches[str(index)]) for index in range(len(branches)))
    return {head: pack(inner) for head, inner in branches.items()}


def leaf_at(nest: Any, path: str) -> Any:
    """The leaf of ``nest`` at ``path``."""
    for key in path.split(".") if path else ():
        nest = nest[int(key) if key.isdecimal() else key]
    return nest
