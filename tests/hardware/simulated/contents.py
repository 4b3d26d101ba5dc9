"""The content of a buffer of a described machine: a pattern, which takes no memory, or an array computed on demand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.hardware.machine import Mismatch, Pattern
from harness.hardware.patterns import array_mismatch, word_at, words
from simulated.card_memory import CardMemory

if TYPE_CHECKING:
    import numpy.typing as npt


_MODULUS = 2**64


def pattern_mismatch(there: Pattern, expected: Pattern, count: int) -> Mismatch:
    """Compare ``count`` words of two patterns without making either.

    Word ``i`` is the same where ``first + i * step`` is 0 modulo 2**64, for the differences of the two.
    """
    first, step = (there.first - expected.first) % _MODULUS, (there.step - expected.step) % _MODULUS
    if not step:
        return Mismatch(count, 0, word_at(there, 0)) if first and count else Mismatch(0)
    common = math.gcd(step, _MODULUS)
    same = 0
    equal_at = None
    if first % common == 0:
        period = _MODULUS // common
        equal_at = (-first // common) * pow(step // common, -1, period) % period
        same = 0 if equal_at >= count else 1 + (count - 1 - equal_at) // period
    if same == count:
        return Mismatch(0)
    at = 1 if equal_at == 0 else 0
    return Mismatch(count - same, at, word_at(there, at))


@dataclass(frozen=True, slots=True)
class PatternContent:
    """``count`` words of a pattern."""

    pattern: Pattern
    count: int

    @property
    def size_bytes(self) -> int:
        """The size in bytes."""
        return self.count * 8

    def mismatch(self, pattern: Pattern) -> Mismatch:
        """Compare with ``pattern``."""
        return pattern_mismatch(self.pattern, pattern, self.count)

    def array(self) -> npt.NDArray[Any]:
        """Return the words: int64 ``[count]``."""
        return words(self.pattern, self.count)


class ArrayContent:
    """An array that is computed on demand, so what is never read costs nothing."""

    def __init__(self, size_bytes: int, make: Callable[[], npt.NDArray[Any]]) -> None:
        self.size_bytes = size_bytes
        self._make = make
        self._made: npt.NDArray[Any] | None = None

    def array(self) -> npt.NDArray[Any]:
        """Return the array."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def mismatch(self, pattern: Pattern) -> Mismatch:
        """Compare the words with ``pattern``."""
        return array_mismatch(self.array(), pattern)

    def changed_by(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> ArrayContent:
        """Return the same after ``change``."""
        return ArrayContent(self.size_bytes, lambda: change(self.array()))


Content = PatternContent | ArrayContent


class DescribedBuffer:
    """Something on a described card (or in the host's memory). Its memory is freed with it."""

    def __init__(self, card: str, content: Content, memory: CardMemory | None) -> None:
        self.card = card
        self._memory = memory
        self._address = memory.take(content.size_bytes) if memory is not None else 0
        self.content = content

    def __del__(self) -> None:
        # A buffer that did not fit has no content.
        if getattr(self, "content", None) is not None and self._memory is not None:
            self._memory.give_back(self._address)


def flip(array: npt.NDArray[Any], draw: int) -> npt.NDArray[Any]:
    """Return a copy of ``array`` with one bit changed, at a place chosen by ``draw``."""
    made = np.array(array, copy=True)
    octets = made.reshape(-1).view(np.uint8)
    if len(octets):
        octets[draw % len(octets)] ^= np.uint8(1 << draw // len(octets) % 8)
    return made
