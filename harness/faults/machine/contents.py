"""What a buffer of a described machine holds: a pattern, which takes no memory, or an array that is made when asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.faults.machine.card_memory import CardMemory, StuckCell
from harness.hardware.machine import Mismatch, Pattern
from harness.hardware.words import array_mismatch, pattern_mismatch, word_at, words

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class PatternContent:
    """``count`` words of a pattern; ``changed`` holds the words that are something else, by index."""

    pattern: Pattern
    count: int
    changed: dict[int, int] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Size in bytes."""
        return self.count * 8

    def mismatch(self, pattern: Pattern) -> Mismatch:
        """Where this is not ``pattern``."""
        told = pattern_mismatch(self.pattern, pattern, self.count)
        count, first = told.count, told.first_word
        for index, found in self.changed.items():
            was = word_at(self.pattern, index) != word_at(pattern, index)
            now = found != word_at(pattern, index)
            count += now - was
            if now and (first is None or index < first):
                first = index
        if not count or first is None:
            return Mismatch(0)
        # The first word that differed may have been put right by a change: then the next one is looked for.
        while self._word(first) == word_at(pattern, first):
            first += 1
        return Mismatch(count, first, self._word(first))

    def array(self) -> npt.NDArray[Any]:
        """The words: int64 ``[count]``."""
        made = words(self.pattern, self.count)
        if self.changed:
            made = made.copy()
            for index, found in self.changed.items():
                made.view(np.uint64)[index] = found
        return made

    def stored(self, cells: list[tuple[int, StuckCell]]) -> PatternContent:
        """What is read back where some cells are stuck."""
        if not cells:
            return self
        changed = dict(self.changed)
        for index, cell in cells:
            written = self._word(index)
            if (read := cell.read(written)) != written:
                changed[index] = read
        return PatternContent(self.pattern, self.count, changed)

    def flipped(self, index: int, bit: int) -> PatternContent:
        """The same with one bit of one word changed."""
        return PatternContent(self.pattern, self.count, {**self.changed, index: self._word(index) ^ 1 << bit})

    def _word(self, index: int) -> int:
        return self.changed.get(index, word_at(self.pattern, index))


class ArrayContent:
    """An array that is made when it is asked for: what nobody looks at costs nothing."""

    def __init__(self, size_bytes: int, make: Callable[[], npt.NDArray[Any]]) -> None:
        self.size_bytes = size_bytes
        self._make = make
        self._made: npt.NDArray[Any] | None = None

    def array(self) -> npt.NDArray[Any]:
        """The array."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def mismatch(self, pattern: Pattern) -> Mismatch:
        """Where its words are not ``pattern``."""
        return array_mismatch(self.array(), pattern)

    def changed_by(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> ArrayContent:
        """The same after ``change``."""
        return ArrayContent(self.size_bytes, lambda: change(self.array()))


Content = PatternContent | ArrayContent


class DescribedBuffer:
    """Something on a described card (or in the host's memory). Its part of the memory is free when it goes."""

    def __init__(self, card: str, content: Content, memory: CardMemory | None) -> None:
        self.card = card
        self._memory = memory
        self._address = memory.take(content.size_bytes) if memory is not None else 0
        if memory is not None and isinstance(content, PatternContent):
            content = content.stored(memory.stuck_within(self._address, content.size_bytes))
        self.content = content

    def __del__(self) -> None:
        # Where no room was found, the buffer has no content.
        if getattr(self, "content", None) is not None and self._memory is not None:
            self._memory.give_back(self._address)


def flip(array: npt.NDArray[Any], draw: int) -> npt.NDArray[Any]:
    """A copy of ``array`` with one bit changed, at a place that ``draw`` chooses."""
    made = np.array(array, copy=True)
    octets = made.reshape(-1).view(np.uint8)
    if len(octets):
        octets[draw % len(octets)] ^= np.uint8(1 << draw // len(octets) % 8)
    return made
