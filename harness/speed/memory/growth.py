"""Does a series of numbers, one for each step, grow without end?

A program may first fill caches, and hold more after one step than after another. So the first quarter of the steps does
not count, and the rest is cut into thirds: what grows is at no time in one third as small as at any time in the third
before. In a series without a trend, chance alone does that in less than one of ten million.
"""

from __future__ import annotations

from collections.abc import Sequence

#: The fewest steps in which growth is looked for: fewer leave thirds of one step.
FEWEST_STEPS = 8


def growth(series: Sequence[int]) -> float:
    """Return by how much a series of at least ``FEWEST_STEPS`` numbers grows with each step; 0 if it does not."""
    kept = series[len(series) // 4 :]
    third = len(kept) // 3
    parts = [kept[len(kept) - third * left : len(kept) - third * (left - 1)] for left in (3, 2, 1)]
    lows, highs = [min(part) for part in parts], [max(part) for part in parts]
    apart = lows[1] >= highs[0] and lows[2] >= highs[1]
    if not apart or not highs[0] < highs[1] < highs[2]:
        return 0.0
    return (lows[2] - lows[0]) / (2 * third)
