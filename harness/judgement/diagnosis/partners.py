"""What of the reference a tensor of the program is: a whole result, rows of it, a shard's part of it, or nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from harness.judgement.diagnosis.joins import Join
from harness.judgement.diagnosis.question import Array
from harness.judgement.diagnosis.recorded import Step, close, equal
from harness.judgement.tolerance import epsilon_of

#: Rows of larger results are not looked for.
_MOST_ELEMENTS = 2**20
_JOINS = ("sum", "weighted", "mean", "max", "min")


class Rows(NamedTuple):
    """Some rows of a tensor: along which axis, which, and of how many."""

    axis: int
    numbers: tuple[int, ...]
    of: int


@dataclass(frozen=True)
class Partner:
    """``same``: a result of the reference, or rows of one. ``part``: what a shard adds to one.

    ``local``: what the reference computes from the rows of a shard, and no join of the shards' gives what it computes
    from the batch. ``step`` is the reference's op, if it is known, and ``rows`` are the rows of its result.
    """

    how: Literal["same", "part", "local"]
    step: Step | None = None
    rows: Rows | None = None


class Partners:
    """The results of the reference for the whole batch and, op by op, for the rows of each shard.

    ``given`` are the inputs and the variables; ``sizes`` are the numbers of rows of the shards.
    """

    def __init__(
        self, given: Iterable[Array], whole: Sequence[Step], shards: Sequence[Sequence[Step]], sizes: Sequence[int]
    ) -> None:
        self.sizes = sizes
        kinds = [step.kind for step in whole]
        self.whole, self.shards = whole, shards
        self.aligned = all([step.kind for step in steps] == kinds for steps in shards)
        self.table: dict[tuple[np.dtype, int], list[tuple[Array, Step | None]]] = defaultdict(list)
        self.local: dict[tuple[np.dtype, int], list[tuple[Array, int, int]]] = defaultdict(list)
        for array in given:
            self.table[array.dtype, array.ndim].append((array, None))
        for step in whole:
            for result in step.results:
                if result is not None:
                    self.table[result.dtype, result.ndim].append((result, step))
        of_a_mean = self.aligned and any(self._is_shared_out(number) for number in range(len(whole)))
        for steps, size in zip(shards, sizes, strict=True):
            for number, step in enumerate(steps):
                for port, result in enumerate(step.results):
                    if result is not None:
                        self.local[result.dtype, result.ndim].append((result, number, port))
                        if of_a_mean and step.gradient_of and epsilon_of(result.dtype):
                            part = np.asarray(result * (size / sum(sizes)), result.dtype)
                            self.local[result.dtype, result.ndim].append((part, number, port))
        self._joinable: dict[tuple[int, int], bool] = {}

    def _is_shared_out(self, number: int) -> bool:
        """Whether the shards' gradients are rows of this one, scaled by the batch's rows over the shard's rows.

        The gradient of a mean over the rows is like this.
        """
        wanted = self.whole[number].result
        parts = [steps[number].result for steps in self.shards]
        arrays = [part for part in parts if part is not None]
        if not self.whole[number].gradient_of or wanted is None or not wanted.any() or len(arrays) < len(parts):
            return False
        made = Join("concat").of(_shares(arrays, self.sizes), self.sizes) if wanted.ndim else None
        return made is not None and equal(made, wanted)

    def of(self, array: Array, likely: Sequence[Rows] = ()) -> Partner | None:
        """The partner of a tensor of the program, or ``None``; of equal rows, those that are ``likely``."""
        key = array.dtype, array.ndim
        for other, step in self.table[key]:
            if equal(array, other):
                return Partner("same", step)
        for axis, rows in dict.fromkeys((axis, rows) for _, rows, _ in likely for axis in range(array.ndim)):
            for other, step in self.table[key]:
                if _has_rows(other, axis, rows, array):
                    return Partner("same", step, Rows(axis, rows, other.shape[axis]))
        for other, step in (*self.table[key], *self.table[array.dtype, array.ndim + 1]):
            if (found := _rows_of(array, other)) is not None:
                return Partner("same", step, found)
        local = None
        for other, number, port in self.local[key]:
            if equal(array, other):
                if not self.aligned or self.joinable(number, port):
                    return Partner("part", self.whole[number] if self.aligned else None)
                local = Partner("local", self.whole[number])
        return local

    def joinable(self, number: int, port: int) -> bool:
        """Whether some join of the shards' results of an op of the reference gives its result for the batch."""
        if (number, port) not in self._joinable:
            wanted = self.whole[number].results[port]
            parts = [steps[number].results[port] for steps in self.shards]
            arrays = [part for part in parts if part is not None]
            self._joinable[number, port] = (
                wanted is None or len(arrays) < len(parts) or _join_gives(arrays, wanted, self.sizes)
            )
        return self._joinable[number, port]

    def of_group(self, arrays: Sequence[Array], *, backward: bool = False) -> Partner | None:
        """The result that the results of the same op on several devices make together, or a multiple of it.

        ``backward``: of gradients, which are those of means of the shards or of the batch.
        """
        for how, joined in _joined(arrays, (1,) * len(arrays), ("sum", "max", "min")):
            if how in ("max", "min") and any(equal(array, joined) for array in arrays):
                continue
            for other, step in self.table[joined.dtype, joined.ndim]:
                mean = backward and how == "sum" and equal((joined / len(arrays)).astype(joined.dtype), other)
                if mean or equal(joined, other) or (not backward and self._is_multiple(joined, other, how)):
                    return Partner("part", step)
        return None

    def of_reference(self, array: Array) -> set[int]:
        """The ops of the reference, by number, that have this result, for the batch, rows of it, or a shard."""
        found = {
            number
            for number, step in enumerate(self.whole)
            for result in step.results
            if result is not None and result.dtype == array.dtype and (equal(array, result) or _are_rows(array, result))
        }
        if self.aligned:
            found |= {at for other, at, _ in self.local[array.dtype, array.ndim] if equal(array, other)}
        return found

    def in_order(self, array: Array) -> bool:
        """Whether an array has the rows of some result in their order; also where it has none of them."""
        known = (_rows_of(array, other) for other, _ in self.table[array.dtype, array.ndim])
        rows = [found.numbers for found in known if found is not None]
        return not rows or any(numbers == tuple(sorted(numbers)) for numbers in rows)

    def _is_multiple(self, one: Array, other: Array, how: str) -> bool:
        """Whether one is the other, multiplied or divided by a number of rows or elements, as sums are of means.

        What shards give row by row may be divided by the rows of the batch, in order to be added up later.
        """
        if how in ("max", "min"):
            return False
        if one.shape != other.shape or not epsilon_of(one.dtype) or np.iscomplexobj(one):
            return False
        have, want = one.astype(np.float64), other.astype(np.float64)
        if not (np.all(np.isfinite(have)) and np.all(np.isfinite(want)) and np.any(want) and np.any(have)):
            return False
        ratio = float(np.sum(have * want) / np.sum(want * want))
        times = max(abs(ratio), 1 / abs(ratio)) if ratio else 0.0
        step = 1 if have.size > 1 and how == "sum" else max(2, sum(self.sizes))
        simple = times >= step and abs(times / step - round(times / step)) < 1e-4
        return simple and equal((want * ratio).astype(one.dtype), one)


def _joined(
    arrays: Sequence[Array], sizes: Sequence[int], names: Sequence[str] = _JOINS
) -> Iterator[tuple[str, Array]]:
    joins = [*map(Join, names), *(Join("concat", axis) for axis in range(arrays[0].ndim))]
    for join in joins:
        if (value := join.of(arrays, sizes)) is not None:
            yield join.name, value


def _join_gives(arrays: Sequence[Array], wanted: Array, sizes: Sequence[int]) -> bool:
    # Rows of the gradient of a mean are divided by the number of rows that there are.
    return all(equal(array, wanted) for array in arrays) or any(
        equal(made, wanted) for parts in (arrays, _shares(arrays, sizes)) for _, made in _joined(parts, sizes)
    )


def _shares(arrays: Sequence[Array], sizes: Sequence[int]) -> list[Array]:
    return [np.asarray(array * (size / sum(sizes)), array.dtype) for array, size in zip(arrays, sizes, strict=True)]


def _are_rows(array: Array, other: Array) -> bool:
    return _rows_of(array, other) is not None


def _has_rows(other: Array, axis: int, rows: Sequence[int], array: Array) -> bool:
    """Whether an array has these rows of another one."""
    if array.ndim != other.ndim or axis >= other.ndim or array.shape[axis] != len(rows) or not array.size:
        return False
    if max(rows) >= other.shape[axis] or other.size > _MOST_ELEMENTS:
        return False
    part = np.take(other, rows, axis)
    return part.shape == array.shape and equal(array, part)


def _rows_of(array: Array, other: Array) -> Rows | None:
    """Which rows of another array, along one of its axes, an array is made of; ``None`` where it is not."""
    if not 1 < array.size <= other.size <= _MOST_ELEMENTS or array.dtype.kind == "b":
        return None
    if array.ndim == other.ndim - 1:
        if array.shape != other.shape[1:]:
            return None
        return next((Rows(0, (number,), len(other)) for number, row in enumerate(other) if equal(array, row)), None)
    differing = [axis for axis in range(array.ndim) if array.shape[axis : axis + 1] != other.shape[axis : axis + 1]]
    if array.ndim != other.ndim or len(differing) > 1:
        return None
    axis = differing[0] if differing else 0
    rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    table = np.moveaxis(other, axis, 0).reshape(other.shape[axis], -1)
    if rows.shape[1] == 1:
        # Single numbers are found anywhere: they have to stand in a row.
        starts = range(len(table) - len(rows) + 1)
        found = (start for start in starts if bool(np.all(close(rows, table[start : start + len(rows)]))))
        return next((Rows(axis, tuple(range(start, start + len(rows))), len(table)) for start in found), None)
    numbers: list[int] = []
    for row in rows:
        alike = np.flatnonzero(np.all(close(row[np.newaxis], table), axis=1))
        if not len(alike):
            return None
        # Of equal rows, one that follows.
        numbers.append(int(next((number for number in alike if numbers and number > numbers[-1]), alike[0])))
    return Rows(axis, tuple(numbers), len(table))
