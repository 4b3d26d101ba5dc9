"""Robust statistics: how far a value is from the others of its cohort, and which of many such values stand out."""

from __future__ import annotations

import math
from collections.abc import Sequence

#: Makes the median absolute deviation that of a normal distribution.
_SCALE = 1.4826


def median(values: Sequence[float]) -> float:
    """Return the median."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def center_and_spread(values: Sequence[float], floor: float) -> tuple[float, float]:
    """Return the median, and the scaled median absolute deviation, which is at least ``floor`` of the median.

    Neither moves while fewer than half of the values are faulty. Without the floor, values that are all but equal
    would make an outlier of any difference.
    """
    middle = median(values)
    return middle, max(_SCALE * median([abs(value - middle) for value in values]), floor * abs(middle))


def tail(z: float) -> float:
    """Return how likely a normal value is to be at least ``z`` standard deviations above the mean."""
    return 0.5 * math.erfc(z / math.sqrt(2))


def discoveries(chances: Sequence[float], rate: float, tests: int | None = None) -> list[bool]:
    """Return which of many tests to believe: those of the procedure of Benjamini and Hochberg (1995).

    Of what is believed, a share of at most ``rate`` is wrong on average. ``tests`` counts also those that are left out
    of ``chances`` because theirs is above ``rate``, so that they cannot be believed.
    """
    total = len(chances) if tests is None else tests
    order = sorted(range(len(chances)), key=chances.__getitem__)
    last = -1
    for rank, place in enumerate(order):
        if chances[place] <= rate * (rank + 1) / total:
            last = rank
    believed = [False] * len(chances)
    for place in order[: last + 1]:
        believed[place] = True
    return believed


def binomial_tail(least: int, of: int, chance: float) -> float:
    """Return how likely at least ``least`` of ``of`` trials succeed, each with ``chance``."""
    if least <= 0 or chance >= 1:
        return 1.0
    if chance <= 0:
        return 0.0
    logs = [
        math.lgamma(of + 1)
        - math.lgamma(k + 1)
        - math.lgamma(of - k + 1)
        + k * math.log(chance)
        + (of - k) * math.log1p(-chance)
        for k in range(least, of + 1)
    ]
    largest = max(logs)
    return min(1.0, math.exp(largest) * sum(math.exp(each - largest) for each in logs))
