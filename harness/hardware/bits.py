"""Compares stored results bit for bit: no tolerance, no exception for NaN or for the sign of zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class ChangedBits:
    """How many elements differ, in how many bits, and the flat index of the first; ``None`` where none does."""

    elements: int
    bits: int
    first: int | None = None

    def __bool__(self) -> bool:
        return self.elements > 0


def changed_bits(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> ChangedBits:
    """Where ``found`` is not ``expected``, of any dtype. Another shape or dtype counts as every element."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        count = max(found.size, expected.size, 1)
        return ChangedBits(count, count * expected.dtype.itemsize * 8, 0)
    differs = _octets(found) ^ _octets(expected)
    if not differs.any():
        return ChangedBits(0, 0)
    by_element = differs.reshape(-1, found.dtype.itemsize)
    wrong = np.flatnonzero(by_element.any(axis=1))
    return ChangedBits(len(wrong), int(np.unpackbits(differs).sum()), int(wrong[0]))


def _octets(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
