"""What of the reference a tensor of the program is: a whole result, rows of it, a shard's part of it, or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.judgement.diagnosis.joins import Join
from harness.judgement.diagnosis.lookup import Lookup, Rows
from harness.judgement.diagnosis.question import Array
from harness.judgement.diagnosis.recorded import Step, close, equal, slack
from harness.judgement.tolerance import epsilon_of

_JOINS = ("sum", "weighted", "mean", "max", "min")


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
        self.aligned = bool(shards) and all([step.kind for step in steps] == kinds for steps in shards)
        #: What belongs to an array: the number of an op of the reference, or ``None`` for what it was given.
        self.table = Lookup[int | None]()
        #: The number of the op, and which of its outputs it is.
        self.local = Lookup[tuple[int, int]]()
        for array in given:
            self.table.add(array, None)
        for number, step in enumerate(whole):
            for result in step.results:
                if result is not None:
                    self.table.add(result, number)
        of_a_mean = self.aligned and any(self._is_shared_out(number) for number in range(len(whole)))
        for steps, size in zip(shards, sizes, strict=True):
            for number, step in enumerate(steps):
                for port, result in enumerate(step.results):
                    if result is not None:
                        self.local.add(result, (number, port))
                        if of_a_mean and step.gradient_of and epsilon_of(result.dtype):
                            part = np.asarray(result * (size / sum(sizes)), result.dtype)
                            self.local.add(part, (number, port))
        self._joinable: dict[tuple[int, int], bool] = {}
        #: The largest epsilon of the numbers that lead to the result of each op of the reference.
        self._coarse: list[float] = []
        made: dict[int, float] = {}
        for step in whole:
            known = (epsilon_of(result.dtype) for result in step.results if result is not None)
            self._coarse.append(max((*known, *(made.get(name, 0.0) for name in step.inputs)), default=0.0))
            made.update((name, self._coarse[-1]) for name in step.outputs)

    def _is_shared_out(self, number: int) -> bool:
        """Whether the shards' gradients are rows of this one, scaled by the batch's rows over the shard's rows.

        The gradient of a mean over the rows is like this.
        """
        wanted = self.whole[number].result
        if not self.whole[number].gradient_of or wanted is None or not wanted.ndim or not wanted.any():
            return False
        parts = self.parts(number)
        return bool(parts) and equal(Join("concat").of(_shares(parts, self.sizes), self.sizes), wanted)

    def of(self, array: Array, likely: Sequence[Rows] = ()) -> Partner | None:
        """The partner of a tensor of the program, or ``None``; of equal rows, those that are ``likely``."""
        for number in self.table.equal(array):
            return Partner("same", self._step(number))
        for axis, rows in dict.fromkeys((axis, rows) for _, rows, _ in likely for axis in range(array.ndim)):
            for number, found in self.table.with_these_rows(array, axis, rows):
                return Partner("same", self._step(number), found)
        for number, found in self.table.with_rows(array):
            return Partner("same", self._step(number), found)
        local = None
        for number, port in self.local.equal(array):
            if not self.aligned or self.joinable(number, port):
                return Partner("part", self.whole[number] if self.aligned else None)
            local = Partner("local", self.whole[number])
        return local

    def _step(self, number: int | None) -> Step | None:
        return None if number is None else self.whole[number]

    def parts(self, number: int, port: int = 0) -> list[Array]:
        """What an op of the reference gives for each shard; empty if one of the values is not known."""
        known = [array for steps in self.shards if (array := steps[number].results[port]) is not None]
        return known if len(known) == len(self.shards) else []

    def joinable(self, number: int, port: int) -> bool:
        """Whether some join of the shards' results of an op of the reference gives its result for the batch."""
        if (number, port) not in self._joinable:
            wanted, parts = self.whole[number].results[port], self.parts(number, port)
            coarse = self._coarse[number]
            self._joinable[number, port] = wanted is None or not parts or _join_gives(parts, wanted, self.sizes, coarse)
        return self._joinable[number, port]

    def of_group(self, arrays: Sequence[Array], *, backward: bool = False) -> Partner | None:
        """The result that the results of the same op on several devices make together, or a multiple of it.

        ``backward``: of gradients, which are those of means of the shards or of the batch.
        """
        for how, joined in _joined(arrays, (1,) * len(arrays), ("sum", "max", "min")):
            extreme = how in ("max", "min")
            if extreme and any(equal(array, joined) for array in arrays):
                continue
            simple = not (backward or extreme)
            mean = (joined / len(arrays)).astype(joined.dtype) if backward and how == "sum" else None
            for other, number in self._alike(joined, mean, multiples=simple):
                if (
                    (mean is not None and equal(mean, other))
                    or equal(joined, other)
                    or (simple and self._is_multiple(joined, other, how))
                ):
                    return Partner("part", self._step(number))
        return None

    def _alike(self, joined: Array, mean: Array | None, *, multiples: bool) -> list[tuple[Array, int | None]]:
        """The results that may be equal to one of these, or a multiple, in their order."""
        alike = self.table.of_shape(joined)
        if alike is None:
            return []
        likely = [known for each in (joined, mean) if each is not None for known in alike.like(each)]
        likely += alike.multiples_of(joined) if multiples else []
        by_number = {known.number: known for known in likely}
        return [(by_number[number].array, by_number[number].owner) for number in sorted(by_number)]

    def of_reference(self, array: Array) -> set[int]:
        """The ops of the reference, by number, that have this result, for the batch, rows of it, or a shard."""
        found = {number for number in self.table.equal(array) if number is not None}
        found |= {number for number, _ in self.table.with_rows(array) if number is not None}
        if self.aligned:
            found |= {number for number, _ in self.local.equal(array)}
        return found

    def in_order(self, array: Array) -> bool:
        """Whether an array has the rows of some result in their order; also where it has none of them."""
        rows = [found.numbers for _, found in self.table.with_rows(array, one=False)]
        return not rows or any(numbers == tuple(sorted(numbers)) for numbers in rows)

    def _is_multiple(self, one: Array, other: Array, how: str) -> bool:
        """Whether one is the other, multiplied or divided by a number of rows or elements, as sums are of means.

        What shards give row by row may be divided by the rows of the batch, in order to be added up later.
        """
        if not epsilon_of(one.dtype) or np.iscomplexobj(one):
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


def _join_gives(arrays: Sequence[Array], wanted: Array, sizes: Sequence[int], coarse: float) -> bool:
    # Rows of the gradient of a mean are divided by the number of rows that there are.
    own = epsilon_of(wanted.dtype)
    off = slack(wanted) * (max(coarse, own) / own if own else 1.0)
    return all(equal(array, wanted) for array in arrays) or any(
        made.shape == wanted.shape and bool(np.all(close(made, wanted, off)))
        for parts in (arrays, _shares(arrays, sizes))
        for _, made in _joined(parts, sizes)
    )


def _shares(arrays: Sequence[Array], sizes: Sequence[int]) -> list[Array]:
    return [np.asarray(array * (size / sum(sizes)), array.dtype) for array, size in zip(arrays, sizes, strict=True)]
