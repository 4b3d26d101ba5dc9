"""Finds an array among the results of the reference: an equal one, or one that has its rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from harness.judgement.diagnosis.question import Array
from harness.judgement.diagnosis.recorded import close, equal, may_be_close, numbers_of, slack, ulps_of
from harness.judgement.tolerance import epsilon_of
from harness.judgement.values import wide

#: Rows of larger arrays are not looked for.
_MOST_ELEMENTS = 2**20

#: So many elements of two arrays are compared first, with this times the slack; fewer arrays than these one by one.
_SAMPLE, _MORE, _FEW = 8, 1.01, 4
#: Larger tables are not made, in elements.
_MOST_IN_TABLE = 2**24

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


class SideBySide(Generic[Owner]):
    """Arrays of one shape and dtype, in one table: one comparison finds those that may be equal to another array."""

    def __init__(self) -> None:
        self.known: list[_Known[Owner]] = []

    def add(self, known: _Known[Owner]) -> None:
        """Add an array, before any is looked for."""
        self.known.append(known)

    def with_elements(self, positions: Array, elements: Array) -> Sequence[_Known[Owner]]:
        """Those that may have these elements at these positions of the flat array."""
        table = self.table
        if table is None:
            return self.known
        own = table[:, positions]
        with np.errstate(invalid="ignore", over="ignore"):
            bound = _MORE * (self._off[:, np.newaxis] + self._ulps * np.abs(own))
            far = np.any(np.abs(own - _for_table(elements)) > bound, axis=1)
        return [self.known[number] for number in np.flatnonzero(~far)]

    def like(self, array: Array) -> Sequence[_Known[Owner]]:
        """Those that may be equal to an array of this shape."""
        positions = _sample(array.size)
        return self.with_elements(positions, array.reshape(-1)[positions])

    def multiples_of(self, array: Array) -> Sequence[_Known[Owner]]:
        """Those that may be a floating array of this shape, times a number."""
        if not epsilon_of(array.dtype) or np.iscomplexobj(array) or self.table is None:
            return self.known
        have, (table, squares) = wide(array).reshape(-1), self._squares
        with np.errstate(all="ignore"):
            off = np.square(table @ have) / squares  # what is left of the array's square without its part along a row
            total = float(have @ have)
            bound = array.size * (_MORE * slack(array)) ** 2 + 1e-9 * total
            return [self.known[number] for number in np.flatnonzero(~(total - off > bound))]

    def may_have(self, low: float, high: float) -> list[_Known[Owner]]:
        """Those that may have elements as small and as large as these."""
        least, most = self._ranges
        off = 2.0 * np.maximum(self._off, self._ulps * np.maximum(np.abs(least), np.abs(most)))
        return [self.known[number] for number in np.flatnonzero(~((low < least - off) | (high > most + off)))]

    def with_row(self, row: Array, axis: int, low: float, high: float) -> list[_Known[Owner]]:
        """Those that may have a row along an axis, and elements as small and as large as these."""
        known = self.may_have(low, high)
        if self.table is None or not known:
            return known
        sizes, (first, *_) = np.abs(row), self.known
        rows = np.moveaxis(self.table.reshape(-1, *first.array.shape), axis + 1, 1)
        rows = rows.reshape(*rows.shape[:2], -1)
        alike = np.ones(rows.shape[:2], bool)
        with np.errstate(invalid="ignore", over="ignore"):
            for at in {int(np.argmax(sizes)), int(np.argmin(sizes))}:
                own = rows[:, :, at]
                bound = _MORE * (self._off[:, np.newaxis] + self._ulps * np.abs(own))
                alike &= ~(np.abs(own - _for_table(row[at])) > bound)
        may = {self.known[number].number for number in np.flatnonzero(np.any(alike, axis=1))}
        return [each for each in known if each.number in may]

    @cached_property
    def table(self) -> Array | None:
        """The flat arrays, one in a row; ``None`` where there are few, or where they are too large."""
        size = self.known[0].array.size
        if len(self.known) < _FEW or not size or len(self.known) * size > _MOST_IN_TABLE:
            return None
        return _for_table(np.stack([known.array.reshape(-1) for known in self.known]))

    @cached_property
    def _squares(self) -> tuple[Array, Array]:
        assert self.table is not None
        table = wide(self.table)
        return table, np.sum(np.square(table), axis=1)

    @cached_property
    def _off(self) -> Array:
        return np.array([known.off for known in self.known])

    @cached_property
    def _ulps(self) -> float:
        return ulps_of(self.known[0].array)

    @cached_property
    def _ranges(self) -> tuple[Array, Array]:
        ranges = np.array([known.range for known in self.known])
        return ranges[:, 0], ranges[:, 1]


class Lookup(Generic[Owner]):
    """Arrays, each with what it belongs to, in the order in which they were added."""

    def __init__(self) -> None:
        self._by_shape: dict[tuple[np.dtype, tuple[int, ...]], SideBySide[Owner]] = defaultdict(SideBySide)
        #: By the shape without an axis: those whose rows along it may be an array's.
        self._by_rest: dict[tuple[np.dtype, int, tuple[int, ...]], dict[int, SideBySide[Owner]]] = defaultdict(dict)
        self._count = 0

    def add(self, array: Array, owner: Owner) -> None:
        """Add an array, before any is looked for."""
        known = _Known(array, owner, self._count)
        self._count += 1
        alike = self._by_shape[numbers_of(array), array.shape]
        alike.add(known)
        if array.size <= _MOST_ELEMENTS:
            for axis in range(array.ndim):
                self._by_rest[numbers_of(array), axis, _without(array.shape, axis)][array.shape[axis]] = alike

    def of_shape(self, array: Array) -> SideBySide[Owner] | None:
        """The arrays of the same shape and dtype; whole numbers may have another number of bits."""
        return self._by_shape.get((numbers_of(array), array.shape))

    def equal(self, array: Array) -> Iterator[Owner]:
        """What equal arrays belong to."""
        alike = self.of_shape(array)
        yield from (known.owner for known in (alike.like(array) if alike else ()) if equal(array, known.array))

    def with_these_rows(self, array: Array, axis: int, numbers: Sequence[int]) -> Iterator[tuple[Owner, Rows]]:
        """What arrays belong to that have these rows along an axis, and they are those of ``array``."""
        if not array.size or array.shape[axis] != len(numbers):
            return
        found: list[_Known[Owner]] = []
        positions = _sample(array.size)
        elements, at = array.reshape(-1)[positions], [*np.unravel_index(positions, array.shape)]
        at[axis] = np.asarray(numbers)[at[axis]]
        for count, alike in self._with_rest(array, axis, _without(array.shape, axis)):
            if max(numbers) < count:
                shape = (*array.shape[:axis], count, *array.shape[axis + 1 :])
                found += alike.with_elements(np.ravel_multi_index(at, shape), elements)
        for known in sorted(found, key=lambda each: each.number):
            if equal(array, np.take(known.array, numbers, axis)):
                yield known.owner, Rows(axis, tuple(numbers), known.array.shape[axis])

    def with_rows(self, array: Array, *, one: bool = True) -> Iterator[tuple[Owner, Rows]]:
        """What arrays belong to that have all rows of ``array``, or are rows of which ``array`` is ``one``."""
        if array.size < 2 or array.dtype.kind == "b":
            return
        low, high = _range(array)
        along = [
            (known, axis)
            for axis in range(array.ndim)
            for count, alike in self._with_rest(array, axis, _without(array.shape, axis))
            if count > array.shape[axis] or (count == array.shape[axis] and not axis)
            for known in alike.with_row(np.take(array, 0, axis).reshape(-1), axis, low, high)
        ]
        for known, axis in sorted(along, key=lambda each: (each[0].number, each[1])):
            if (numbers := _rows_in(array, known.array, axis, known.off)) is not None:
                yield known.owner, Rows(axis, numbers, known.array.shape[axis])
        if not one:
            return
        rows, flat = self._with_rest(array, 0, array.shape), array.reshape(-1)
        found = [known for _, alike in rows for known in alike.with_row(flat, 0, low, high)]
        for known in sorted(found, key=lambda each: each.number):
            if (number := _number_in(array, known.array, known.off)) is not None:
                yield known.owner, Rows(0, (number,), len(known.array))

    def _with_rest(self, array: Array, axis: int, rest: tuple[int, ...]) -> Iterator[tuple[int, SideBySide[Owner]]]:
        """The arrays of this dtype with this shape without an axis, by their size along it."""
        yield from self._by_rest.get((numbers_of(array), axis, rest), {}).items()


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


@lru_cache(maxsize=256)
def _sample(size: int) -> Array:
    """A few positions in a flat array."""
    return np.arange(0, size, max(size // _SAMPLE, 1))[: _SAMPLE + 1]


def _for_table(array: Array) -> Array:
    """The same numbers in a dtype that NumPy subtracts."""
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    return array if array.dtype in (np.float32, np.float64, np.complex64, np.complex128) else wide(array)


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
