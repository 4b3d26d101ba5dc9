"""Compares stored results bit for bit: no tolerance, no exception for NaN or for the sign of zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.plural import plural

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class ChangedBits:
    """How many elements differ and in how many bits; the flat index of the first, its index, and both its values."""

    elements: int
    bits: int
    first: int | None = None
    index: tuple[int, ...] = ()
    found: str = ""
    expected: str = ""

    def __bool__(self) -> bool:
        return self.elements > 0

    def __str__(self) -> str:
        elements, bits = plural(self.elements, "wrong element"), plural(self.bits, "wrong bit")
        return f"{elements}, {bits}, the first at element {self.first}"


def changed_bits(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> ChangedBits:
    """Compare two arrays of any dtype. Another shape or dtype counts as every element."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        count = max(found.size, expected.size, 1)
        kinds = (f"{each.dtype} {each.shape}" for each in (found, expected))
        return ChangedBits(count, count * expected.dtype.itemsize * 8, 0, (), *kinds)
    differs = _octets(found) ^ _octets(expected)
    if not differs.any():
        return ChangedBits(0, 0)
    by_element = differs.reshape(-1, found.dtype.itemsize)
    wrong = np.flatnonzero(by_element.any(axis=1))
    first = int(wrong[0])
    index = tuple(int(each) for each in np.unravel_index(first, found.shape))
    bits = int(np.unpackbits(by_element[wrong]).sum())
    return ChangedBits(len(wrong), bits, first, index, f"{found[index]}", f"{expected[index]}")


def _octets(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
