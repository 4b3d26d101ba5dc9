"""When measuring ends, and in which order it runs; on a clock that the test turns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from harness.speed.estimate import paired_speedup, relative_half_width
from harness.speed.pairs import FEWEST_PRECISE_PAIRS, LEAST_S, MOST_PAIRS, Samples, run_pairs


@dataclass
class _Machine:
    """Sides that take as long as they are told, and a clock that only they move."""

    now_ns: int = 0
    ran: list[str] = field(default_factory=list)

    def side(self, name: str, takes_ns: Callable[[], float]) -> Callable[[], int]:
        def run() -> int:
            taken = round(takes_ns())
            self.now_ns += taken
            self.ran.append(name)
            return taken

        return run

    def measure(self, single_ns: Callable[[], float], parallel_ns: Callable[[], float], **wanted: Any) -> Samples:
        return run_pairs(
            self.side("single", single_ns),
            self.side("parallel", parallel_ns),
            **{"budget_s": 10.0, "half_width": 0.01, "confidence": 0.95, "seed": 0, **wanted},
            clock=lambda: self.now_ns,
        )


def _noisy(random: np.random.Generator, ns: float, scatter: float) -> Callable[[], float]:
    return lambda: ns * math.exp(random.normal(0.0, scatter))


def test_without_noise_it_ends_precise_with_the_fewest_pairs_of_long_calls() -> None:
    samples = _Machine().measure(lambda: 200e6, lambda: 100e6)
    assert samples.stopped == "precise"
    assert samples.single_ns == (200_000_000,) * FEWEST_PRECISE_PAIRS
    assert samples.parallel_ns == (100_000_000,) * FEWEST_PRECISE_PAIRS
    assert samples.elapsed_s == pytest.approx(0.3 * FEWEST_PRECISE_PAIRS)


def test_however_precise_it_goes_on_for_some_seconds_because_neighbours_come_and_go() -> None:
    samples = _Machine().measure(lambda: 2e6, lambda: 1e6)
    assert samples.stopped == "precise"
    assert LEAST_S <= samples.elapsed_s < 1.3 * LEAST_S
    short = _Machine().measure(lambda: 2e6, lambda: 1e6, budget_s=0.5)
    assert short.elapsed_s == pytest.approx(0.5, rel=0.01)


def test_noise_takes_more_pairs_until_the_interval_is_as_narrow_as_wanted() -> None:
    random = np.random.default_rng(0)
    samples = _Machine().measure(_noisy(random, 2e6, 0.05), _noisy(random, 1e6, 0.05))
    assert samples.stopped == "precise"
    assert len(samples.single_ns) > 5 * FEWEST_PRECISE_PAIRS
    assert relative_half_width(paired_speedup(samples.single_ns, samples.parallel_ns)) <= 0.01


def test_when_the_time_is_up_it_ends_and_says_so() -> None:
    random = np.random.default_rng(0)
    samples = _Machine().measure(_noisy(random, 2e6, 0.5), _noisy(random, 1e6, 0.5), budget_s=0.1)
    assert samples.stopped == "budget"
    assert 0.1 <= samples.elapsed_s < 0.12


def test_there_are_five_pairs_however_long_they_take() -> None:
    samples = _Machine().measure(lambda: 2e12, lambda: 1e12, budget_s=1.0)
    assert (samples.stopped, len(samples.single_ns)) == ("budget", 5)


def test_there_is_a_greatest_number_of_pairs() -> None:
    # One nanosecond is too coarse to become precise, and too short to use the time up.
    random = np.random.default_rng(0)

    def coarse() -> float:
        return float(random.integers(1, 9))

    samples = _Machine().measure(coarse, coarse, half_width=1e-4)
    assert (samples.stopped, len(samples.single_ns)) == ("pairs", MOST_PAIRS)


def test_each_pair_runs_both_sides_in_an_order_drawn_by_the_seed() -> None:
    orders = []
    for seed in (0, 0, 1):
        machine = _Machine()
        machine.measure(lambda: 2e6, lambda: 1e6, seed=seed)
        pairs = [tuple(machine.ran[index : index + 2]) for index in range(0, len(machine.ran), 2)]
        assert set(pairs) == {("single", "parallel"), ("parallel", "single")}
        orders.append(pairs)
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.long
def test_looking_at_the_interval_while_measuring_costs_little_of_its_coverage() -> None:
    """Measuring ends where the interval happens to be narrow; it is looked at seldom, so that this matters little."""
    random = np.random.default_rng(3)
    runs = [_Machine().measure(_noisy(random, 2e6, 0.03), _noisy(random, 1e6, 0.03)) for _ in range(200)]
    assert all(samples.stopped == "precise" for samples in runs)
    intervals = [paired_speedup(samples.single_ns, samples.parallel_ns) for samples in runs]
    assert sum(interval.lower <= 2.0 <= interval.upper for interval in intervals) >= 0.92 * len(runs)
