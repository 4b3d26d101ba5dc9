"""The work of one call, as its author states it, and the resulting rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from harness.errors import UsageError


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one call of either side: floating-point operations, bytes read and written.

    A product of two n x n matrices is ``Work(flops=2 * n**3)``, an addition of two vectors of n float32 values
    ``Work(moved_bytes=12 * n)``. ``None``: unknown.

    Raises:
        UsageError: a figure is not positive and finite, or none is given.
    """

    flops: float | None = None
    moved_bytes: float | None = None

    def __post_init__(self) -> None:
        given = {"flops": self.flops, "moved_bytes": self.moved_bytes}
        if all(figure is None for figure in given.values()):
            raise UsageError("Work() is empty; give flops=, moved_bytes= or both, or omit work=")
        for name, figure in given.items():
            if figure is not None and not (math.isfinite(figure) and figure > 0):
                raise UsageError(f"Work({name}={figure!r}): accepted: a positive number, per call of either side")


def rate_per_s(amount: float | None, times_ns: Sequence[float]) -> float | None:
    """Compute ``amount`` per second at the median time of one call, in ns; ``None`` without an amount."""
    return None if amount is None else amount / (median(times_ns) * 1e-9)
