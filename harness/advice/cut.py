"""Cuts a chain of layers into stages whose largest cost is as small as it can be."""

from __future__ import annotations

from collections.abc import Sequence


def best_cut(costs: Sequence[float], stages: int, allowed: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return where to cut: the numbers of the layers at which the stages begin, and the number of layers at the end.

    The largest cost of a stage is the smallest possible, by dynamic programming over the layers. Among equal cuts the
    earlier stages are longer. There are ``stages`` stages, or fewer where the chain has fewer places to cut.

    Args:
        costs: the cost of each layer, such as its seconds; 0 or more.
        stages: how many stages are wanted; 1 or more.
        allowed: the layers that may begin a stage (layer 0 always may). ``None``: any.
    """
    count = len(costs)
    places = [place for place in (range(1, count) if allowed is None else sorted(set(allowed))) if 0 < place < count]
    ends = [*places, count]
    sums = [0.0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    #: By the end of the last stage: the largest cost so far, and where the stages begin.
    reached: dict[int, tuple[float, tuple[int, ...]]] = {end: (sums[end], (0,)) for end in ends}
    for _ in range(min(stages, len(ends)) - 1):
        longer: dict[int, tuple[float, tuple[int, ...]]] = {}
        for end in ends:
            tries = [
                (max(worst, sums[end] - sums[begin]), (*begins, begin))
                for begin, (worst, begins) in reached.items()
                if begin < end
            ]
            if tries:
                longer[end] = min(tries, key=lambda each: (each[0], tuple(-begin for begin in each[1])))
        reached = longer
    return (*reached[count][1], count)
