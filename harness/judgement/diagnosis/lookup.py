"""Finds an array among the results of the reference: an equal one, or one that has its rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from harness.judgement.diagnosis.question import Array
from harness.judgement.diagnosis.recorded import close, equal, may_be_close, numbers_of, slack, ulps_of

#: Rows of larger arrays are not looked for.
_MOST_ELEMENTS = 2**20

Owner = TypeVar("Owner")


class Rows(NamedTuple):
    """Some rows of a tensor: along which axis, which, and of how many."""

    axis: int
    numbers: tuple[int, ...]
    of: int


@dataclass(frozen=True)
class _Known(Generic[Owner]):
    array: Array
    owner: Owner
    number: int

    @cached_property
    def off(self) -> float:
        """By how much equal elements may differ."""
        return slack(self.array)

    @cached_property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest element; ``nan`` where they tell nothing."""
        return _range(self.array)

    def may_have(self, low: float, high: float) -> bool:
        """Whether there may be elements as small and as large as these."""
        least, most = self.range
        off = 2.0 * max(self.off, ulps_of(self.array) * max(abs(least), abs(most)))
        return not (low < least - off or high > most + off)


class Lookup(Generic[Owner]):
    """Arrays, each with what it belongs to, in the order in which they were added."""

    def __init__(self) -> None:
        self._by_shape: dict[tuple[np.dtype, tuple[int, ...]], list[_Known[Owner]]] = defaultdict(list)
        #: By the shape without an axis: those whose rows along it may be an array's.
        self._by_rest: dict[tuple[np.dtype, int, tuple[int, ...]], list[_Known[Owner]]] = defaultdict(list)
        self._count = 0

    def add(self, array: Array, owner: Owner) -> None:
        """Add an array."""
        known = _Known(array, owner, self._count)
        self._count += 1
        self._by_shape[numbers_of(array), array.shape].append(known)
        if array.size <= _MOST_ELEMENTS:
            for axis in range(array.ndim):
                self._by_rest[numbers_of(array), axis, _without(array.shape, axis)].append(known)

    def of_shape(self, array: Array) -> Iterator[tuple[Array, Owner]]:
        """The arrays of the same shape and dtype; whole numbers may have another number of bits."""
        yield from ((known.array, known.owner) for known in self._by_shape.get((numbers_of(array), array.shape), ()))

    def equal(self, array: Array) -> Iterator[Owner]:
        """What equal arrays belong to."""
        yield from (owner for other, owner in self.of_shape(array) if equal(array, other))

    def with_these_rows(self, array: Array, axis: int, numbers: Sequence[int]) -> Iterator[tuple[Owner, Rows]]:
        """What arrays belong to that have these rows along an axis, and they are those of ``array``."""
        if not array.size or array.shape[axis] != len(numbers):
            return
        for known in self._by_rest.get((numbers_of(array), axis, _without(array.shape, axis)), ()):
            count = known.array.shape[axis]
            if max(numbers) < count and equal(array, np.take(known.array, numbers, axis)):
                yield known.owner, Rows(axis, tuple(numbers), count)

    def with_rows(self, array: Array, *, one: bool = True) -> Iterator[tuple[Owner, Rows]]:
        """What arrays belong to that have all rows of ``array``, or are rows of which ``array`` is ``one``."""
        if array.size < 2 or array.dtype.kind == "b":
            return
        low, high = _range(array)
        along = [
            (known, axis)
            for axis in range(array.ndim)
            for known in self._by_rest.get((numbers_of(array), axis, _without(array.shape, axis)), ())
            if known.array.size > array.size or (known.array.shape == array.shape and not axis)
        ]
        for known, axis in sorted(along, key=lambda each: (each[0].number, each[1])):
            if known.may_have(low, high) and (numbers := _rows_in(array, known.array, axis, known.off)) is not None:
                yield known.owner, Rows(axis, numbers, known.array.shape[axis])
        for known in self._by_rest.get((numbers_of(array), 0, array.shape), ()) if one else ():
            if known.may_have(low, high) and (number := _number_in(array, known.array, known.off)) is not None:
                yield known.owner, Rows(0, (number,), len(known.array))


def whole_and_rows(whole: Array | None, rows: Rows | None) -> list[Array]:
    """A result of the reference, if it is known, and these rows of it, if it has them."""
    if whole is None:
        return []
    parts = [whole]
    if rows is not None and whole.ndim > rows.axis and whole.shape[rows.axis] > max(rows.numbers, default=0):
        parts.append(np.take(whole, rows.numbers, rows.axis))
    return parts


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _range(array: Array) -> tuple[float, float]:
    if not array.size or np.iscomplexobj(array):
        return np.nan, np.nan
    return float(np.min(array)), float(np.max(array))


def _number_in(row: Array, table: Array, off: float) -> int | None:
    """Which row of a table an array is."""
    flat = table.reshape(len(table), -1)
    numbers = _candidates(row.reshape(-1), lambda at: flat[:, at], off)
    return next((int(number) for number in numbers if equal(row, table[number])), None)


def _rows_in(array: Array, other: Array, axis: int, off: float) -> tuple[int, ...] | None:
    """Which rows of another array, along an axis, an array is made of; ``None`` where it is not."""
    rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    table = np.moveaxis(other, axis, 0).reshape(other.shape[axis], -1)
    if rows.shape[1] == 1:
        # Single numbers are found anywhere: they have to stand in a row.
        last = len(table) - len(rows)
        starts = _candidates(rows[:, 0], lambda at: table[at : last + at + 1, 0], off)
        found = (start for start in starts if bool(np.all(close(rows, table[start : start + len(rows)]))))
        return next((tuple(range(start, start + len(rows))) for start in found), None)
    numbers: list[int] = []
    for row in rows:
        known = _candidates(row, lambda at: table[:, at], off)
        alike = known[np.all(close(row[np.newaxis], table[known], off), axis=1)]
        if not len(alike):
            return None
        # Of equal rows, one that follows.
        numbers.append(int(next((number for number in alike if numbers and number > numbers[-1]), alike[0])))
    return tuple(numbers)


def _candidates(row: Array, column: Callable[[int], Array], off: float) -> Array:
    """Where a row may stand, by its largest and its smallest element: ``column`` gives what stands in their place."""
    sizes = np.abs(row)
    ends = (int(np.argmax(sizes)), int(np.argmin(sizes)))
    return np.flatnonzero(np.all([may_be_close(row[at], column(at), off) for at in ends], axis=0))
