"""What is known of a value of a program before it runs: its shape, type and largest magnitude."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a program.

    ``shape`` leaves out the batch axis, which is axis 0 inside a program whatever its axis is outside. A variable or
    a broadcast argument has no batch axis: ``batched`` is false. ``stable`` says that it is the same to the last bit
    however the batch is split: an argument as it came, an integer, a value of exact arithmetic. Only such a value may
    be asked which way to go. ``below`` is the exclusive upper bound of integers that count from 0, and ``bound`` the
    largest magnitude that an element can have. ``levelled`` says that the sum (or for logarithms the sum of the
    exponentials) over an axis is a constant, so that summing again leaves nothing but rounding errors.
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
