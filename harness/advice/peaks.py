"""Whether a step fits into the memory of a device, from the peaks that it has for several batch sizes.

The peak of a step is what does not depend on the batch (weights, slots, their gradients) and what each row adds
(activations and their gradients). So it is close to a line in the number of rows, which two sizes show, and a third one
tests.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

#: The largest peak of five steps is known to within this, as a share: which ops run at once is the executor's choice.
MEASURED_SPREAD = 0.05
#: Beyond the batches that were measured: how much less and more than predicted a step may need, as shares. A peak can
#: bend upwards where activations overtake the update of the weights. On the models of
#: ``tests/benchmarks/scripts/fit_error.py``, twice as large a batch lay within these.
PREDICTED_SPREAD, PREDICTED_MORE = 0.12, 0.25

Verdict = Literal["fits", "does not fit", "too close to tell", ""]


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest peak of some steps with so many rows, and of what came before the first, in bytes.

    To build it, initial values take memory while they are computed, and so may a batch with which a model is built.
    """

    rows: int
    size_bytes: int
    building_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """Peaks as ``fixed_bytes`` and ``row_bytes`` for each row.

    ``error`` is how far the third largest batch is from it, ``noise`` by how much a larger batch needed less: shares.
    """

    fixed_bytes: float
    row_bytes: float
    error: float = 0.0
    noise: float = 0.0

    @classmethod
    def through(cls, peaks: Sequence[Peak]) -> Line:
        """The line through the two largest batches."""
        if len(peaks) < 2:
            return cls(float(peaks[0].size_bytes), 0.0)
        in_order = sorted(peaks, key=lambda peak: peak.rows)
        *others, one, other = in_order
        row = max(0.0, (other.size_bytes - one.size_bytes) / (other.rows - one.rows))
        made = cls(max(0.0, other.size_bytes - row * other.rows), row)
        error = max((abs(made.at(each.rows) / each.size_bytes - 1) for each in others[-1:]), default=0.0)
        noise = max(small.size_bytes / large.size_bytes - 1 for small, large in itertools.pairwise(in_order))
        return cls(made.fixed_bytes, made.row_bytes, error, max(0.0, noise))

    def at(self, rows: float) -> float:
        """The peak for so many rows, in bytes."""
        return self.fixed_bytes + self.row_bytes * rows


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer for one batch. Sizes in bytes; ``held`` is what stays between steps, such as weights and slots."""

    target: str
    step: str
    rows: int
    devices: int
    measured: bool
    peaks: tuple[Peak, ...]
    held_bytes: int
    memory_bytes: int | None = None

    @property
    def rows_of_a_device(self) -> int:
        """The largest shard of the batch."""
        return -(-self.rows // self.devices)

    @property
    def line(self) -> Line:
        """The peaks as a line in the number of rows."""
        return Line.through(self.peaks)

    @property
    def step_bytes(self) -> float:
        """The peak of a step: measured, or else predicted."""
        rows = self.rows_of_a_device
        return next((each.size_bytes for each in self.peaks if each.rows == rows and self.measured), self.line.at(rows))

    @property
    def building_bytes(self) -> int:
        """The peak until the first step, with no more rows than were asked for."""
        return max((each.building_bytes for each in self.peaks if each.rows <= self.rows_of_a_device), default=0)

    @property
    def interval(self) -> tuple[float, float]:
        """The peak of one device lies between these."""
        line, found = self.line, self.step_bytes
        less = more = max(MEASURED_SPREAD, line.noise)
        if not self.measured:
            less, more = (max(each, 2 * line.error) for each in (PREDICTED_SPREAD, PREDICTED_MORE))
        least, most = (self.building_bytes * (1 + sign * MEASURED_SPREAD) for sign in (-1, 1))
        return max(least, found * (1 - less)), max(most, found * (1 + more))

    @property
    def verdict(self) -> Verdict:
        """Whether it fits into ``memory_bytes``; empty without a size."""
        if self.memory_bytes is None:
            return ""
        least, most = self.interval
        return "fits" if most <= self.memory_bytes else "does not fit" if least > self.memory_bytes else _CLOSE

    @property
    def most_rows(self) -> int:
        """The rows of a device that surely fit, up to those that were asked for; 0 if none do."""
        given: float = self.memory_bytes or 0
        return bisect_right(range(1, self.rows_of_a_device + 1), given, key=self._most_bytes)

    def _most_bytes(self, rows: int) -> float:
        """What so many rows take at most: between those that were measured, whose peaks bend upwards, or beyond."""
        in_order = sorted(self.peaks, key=lambda peak: peak.rows)
        if rows > in_order[-1].rows:
            return self.line.at(rows) * (1 + max(PREDICTED_MORE, 2 * self.line.error))
        pairs = [*itertools.pairwise(in_order)] or [(in_order[0], in_order[0])]
        small, large = next(pair for pair in pairs if rows <= pair[1].rows)
        share = (rows - small.rows) / max(1, large.rows - small.rows)
        less, more = (max(each.size_bytes, each.building_bytes) for each in (small, large))
        return (less + share * (more - less)) * (1 + PREDICTED_SPREAD)

    def remedies(self) -> Iterator[tuple[str, str]]:
        """What would make it fit: a word for it, and how much of it."""
        rows, most = self.rows_of_a_device, self.most_rows
        if most >= rows:
            return
        if not most:
            if min(each.building_bytes for each in self.peaks) * (1 - MEASURED_SPREAD) > (self.memory_bytes or 0):
                yield "a pipeline", "to build the model alone takes more than one device has"
            elif self.line.fixed_bytes * (1 - MEASURED_SPREAD) > (self.memory_bytes or 0):
                yield "a pipeline", "not one row fits: weights, slots and gradients alone are too large for one device"
            return
        yield "batch", f"at most {most:,} rows a device"
        parts = -(-rows // most)
        yield "micro-batches", f"at least {parts:,}, of {-(-rows // parts):,} rows, whose gradients are added"
        devices = -(-self.rows // most)
        yield "devices", f"at least {devices:,} that share the batch, with {-(-self.rows // devices):,} rows each"


_CLOSE: Verdict = "too close to tell"
