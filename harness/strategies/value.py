"""The properties of a value that are known before a program runs: shape, type and largest magnitude."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a program.

    ``shape`` has no batch axis, which is axis 0 inside a program. A variable or a broadcast argument is not
    ``batched``. ``stable``: it has the same bits however the batch is split, as arguments, integers and exact values
    have; only such a value may decide a branch. ``below`` is the exclusive upper bound of integers from 0, and
    ``bound`` the largest magnitude of an element. ``levelled``: its sum over an axis (for logarithms, that of the
    exponentials) is constant, so that another sum would give only rounding errors.
    """

    shape: tuple[int, ...]
    dtype: str
    bound: float
    batched: bool = True
    stable: bool = False
    below: int | None = None
    levelled: bool = False

    @property
    def size(self) -> int:
        """Elements per row, or in all when there is no batch axis."""
        return prod(self.shape)
