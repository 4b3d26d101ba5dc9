"""Measures two things against each other: in pairs, each pair in random order, so that drift hits both alike."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Pairs:
    """The two times of each pair, in seconds, in the order in which the pairs ran."""

    left_s: list[float] = field(default_factory=list)
    right_s: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.left_s)

    @property
    def ratios(self) -> list[float]:
        """How many times as long the left one took, pair by pair."""
        return [left / right for left, right in zip(self.left_s, self.right_s, strict=True)]

    @property
    def differences_ms(self) -> list[float]:
        """How much longer the left one took, in milliseconds, pair by pair."""
        return [1e3 * (left - right) for left, right in zip(self.left_s, self.right_s, strict=True)]


class Pairing:
    """Runs ``left`` and ``right`` once each per call, in random order, and keeps the two times in ``pairs``.

    Either is called with the number of the pair, so that each pair can have an input of its own. ``clock`` gives
    seconds.
    """

    def __init__(
        self,
        left: Callable[[int], object],
        right: Callable[[int], object],
        *,
        clock: Callable[[], float] = time.perf_counter,
        seed: int = 0,
    ) -> None:
        self.pairs = Pairs()
        self._clock = clock
        self._sides = ((left, self.pairs.left_s), (right, self.pairs.right_s))
        self._random = random.Random(seed)

    def __call__(self) -> None:
        """Run one pair."""
        number = len(self.pairs)
        for run, taken_s in self._random.sample(self._sides, 2):
            start = self._clock()
            run(number)
            taken_s.append(self._clock() - start)


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """The lower quartile, the median and the upper quartile of two values or more."""
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, median, upper
