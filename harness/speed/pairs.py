"""Runs two sides in turn, pair by pair, until their ratio is precise enough or the time is up."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from harness.speed.estimate import FEWEST_PAIRS, paired_speedup, relative_half_width
from harness.speed.record import Stopped

#: Pairs needed before the interval counts as precise: a few may agree by chance.
FEWEST_PRECISE_PAIRS = 20
#: Seconds needed too: disturbances come and go, and may have covered all calls so far.
LEAST_S = 3.0
#: Largest number of pairs in a record.
MOST_PAIRS = 20_000
#: The interval is checked when there are this many times as many pairs: each check may stop too early by chance.
_NEXT_LOOK = 1.25


@dataclass(frozen=True, slots=True)
class Samples:
    """The times of each pair in ns, the reason to stop, and the seconds that all pairs took."""

    single_ns: tuple[int, ...]
    parallel_ns: tuple[int, ...]
    stopped: Stopped
    elapsed_s: float


def run_pairs(
    single: Callable[[], int],
    parallel: Callable[[], int],
    *,
    budget_s: float,
    half_width: float,
    confidence: float,
    seed: int,
    clock: Callable[[], int],
    between: Callable[[], None] = lambda: None,
) -> Samples:
    """Run pairs. Each side is called once per pair, in random order, and returns its time in ns.

    ``between`` is called after each pair. There are at least 5 pairs, whatever the budget: fewer have no interval.
    ``half_width`` is relative: 0.01 is ± 1 %. ``clock`` gives ns.
    """
    order = random.Random(seed)  # noqa: S311  (not a secret)
    single_ns: list[int] = []
    parallel_ns: list[int] = []
    sides = [(single, single_ns), (parallel, parallel_ns)]
    start = clock()
    look = FEWEST_PRECISE_PAIRS
    while True:
        order.shuffle(sides)
        for run, times_ns in sides:
            times_ns.append(run())
        between()
        pairs = len(single_ns)
        elapsed_s = (clock() - start) / 1e9
        stopped: Stopped | None = None
        if pairs >= look:
            look = max(pairs + 1, int(pairs * _NEXT_LOOK))
            if relative_half_width(paired_speedup(single_ns, parallel_ns, confidence)) <= half_width:
                stopped = "precise" if elapsed_s >= min(LEAST_S, budget_s) else None
        if stopped is None and pairs >= MOST_PAIRS:
            stopped = "pairs"
        if stopped is None and pairs >= FEWEST_PAIRS and elapsed_s >= budget_s:
            stopped = "budget"
        if stopped is not None:
            return Samples(tuple(single_ns), tuple(parallel_ns), stopped, elapsed_s)
