"""The statistics: worked examples by hand, and how often the intervals hold what they are meant to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.errors import UsageError
from harness.speed.estimate import (
    correlation,
    paired_speedup,
    pairs_needed,
    relative_half_width,
    unpaired_speedup,
)
from harness.speed.record import Interval

#: Log ratios of 0.00, 0.01 … 0.09, in an order in which neighbours say little of each other.
_TENTHS = (3, 8, 0, 6, 2, 9, 5, 1, 7, 4)
_MS = 1e6


def _times(logs: Any, base_ns: float = _MS) -> Any:
    return [base_ns * math.exp(float(log)) for log in logs]


def test_paired_speedup_of_ten_pairs_by_hand() -> None:
    """Two values are cut at either end: the mean of 2 … 7 is 4.5.

    Winsorized: 2 2 2 3 4 5 6 7 7 7, sum of squares about 4.5 is 42.5, standard deviation sqrt(42.5 / 9) = 2.17307,
    standard error 2.17307 / (0.6 sqrt(10)) = 1.14531, and Student's t for 97.5 % and 5 degrees of freedom is 2.57058.
    """
    found = paired_speedup(_times(0.01 * tenth for tenth in _TENTHS), [_MS] * 10)
    assert math.log(found.value) == pytest.approx(0.045)
    half = 0.01 * 2.57058 * 1.14531
    assert math.log(found.lower) == pytest.approx(0.045 - half, abs=1e-6)
    assert math.log(found.upper) == pytest.approx(0.045 + half, abs=1e-6)
    assert found.confidence == 0.95


def test_unpaired_speedup_of_ten_and_ten_times_by_hand() -> None:
    """Yuen's test: each side has 42.5 / (6 x 5) = 1.41667, the standard error is the root of twice that, 1.68325.

    There are (2 x 1.41667)^2 / (2 x 1.41667^2 / 5) = 10 degrees of freedom, and Student's t for 97.5 % is 2.22814.
    """
    times = _times(0.01 * tenth for tenth in _TENTHS)
    found = unpaired_speedup([2.0 * time for time in times], times[::-1])
    half = 0.01 * 2.22814 * 1.68325
    assert math.log(found.value) == pytest.approx(math.log(2.0))
    assert math.log(found.upper) == pytest.approx(math.log(2.0) + half, abs=1e-6)
    assert math.log(found.lower) == pytest.approx(math.log(2.0) - half, abs=1e-6)


def test_times_without_any_scatter_give_an_interval_of_no_width() -> None:
    for estimate in (paired_speedup, unpaired_speedup):
        found = estimate([3_000] * 10, [1_500] * 10)
        assert (found.lower, found.value, found.upper) == pytest.approx((2.0, 2.0, 2.0))


def test_a_stall_of_a_thousand_times_in_two_of_ten_pairs_moves_the_speedup_little() -> None:
    quiet = _times(0.01 * tenth for tenth in _TENTHS)
    stalled = [1000.0 * time if index in (1, 5) else time for index, time in enumerate(quiet)]
    assert paired_speedup(stalled, [_MS] * 10).value == paired_speedup(quiet, [_MS] * 10).value


def test_the_half_width_is_that_of_the_wider_side() -> None:
    assert relative_half_width(Interval(2.0, 1.9, 2.2, 0.95)) == pytest.approx(0.1)
    assert relative_half_width(Interval(2.0, 1.6, 2.2, 0.95)) == pytest.approx(0.2)


def test_half_the_width_takes_four_times_the_pairs() -> None:
    """Of many pairs, so that Student's t is the same for both: e^±0.02 from 1000 pairs, e^±0.01 from 4000."""
    seen = Interval(2.0, 2.0 * math.exp(-0.02), 2.0 * math.exp(0.02), 0.95)
    assert pairs_needed(seen, 1000, math.expm1(0.01)) == pytest.approx(4000, rel=5e-3)
    assert pairs_needed(seen, 1000, math.expm1(0.02)) == pytest.approx(1000, abs=1)
    assert pairs_needed(seen, 1000, 0.5) < 20


@pytest.mark.parametrize(
    ("single", "parallel", "why"),
    [
        ([1] * 4, [1] * 4, "at least 5"),
        ([1] * 6, [1] * 5, "the same number of times in both, at least"),
        ([1, 1, 0, 1, 1], [1] * 5, "a time of 0 ns or less"),
    ],
)
def test_times_that_are_no_pairs_are_refused(single: list[int], parallel: list[int], why: str) -> None:
    for estimate in (paired_speedup, unpaired_speedup):
        with pytest.raises(UsageError, match=why):
            estimate(single, parallel)


Noise = Callable[[np.random.Generator, int], NDArray[np.float64]]


def _normal(random: np.random.Generator, pairs: int) -> NDArray[np.float64]:
    return random.normal(0.0, 0.02, pairs)


def _heavy_tails(random: np.random.Generator, pairs: int) -> NDArray[np.float64]:
    """Student's t with 2 degrees of freedom: it has no variance."""
    return 0.02 * random.standard_t(2, pairs)


def _stalls(random: np.random.Generator, pairs: int) -> NDArray[np.float64]:
    """Skewed: never faster than undisturbed, and in 8 % of the calls much slower."""
    return np.abs(random.normal(0.0, 0.01, pairs)) + (random.random(pairs) < 0.08) * random.exponential(0.5, pairs)


def _runs(noise: Noise, runs: int, pairs: int = 40) -> Any:
    """Times of both sides with a true speedup of 2, on a machine whose speed wanders by 1 % from pair to pair."""
    random = np.random.default_rng(20180404)
    for _ in range(runs):
        wander = np.cumsum(random.normal(0.0, 0.01, pairs))
        yield 2 * _MS * np.exp(wander + noise(random, pairs)), _MS * np.exp(wander + noise(random, pairs))


@pytest.mark.parametrize("noise", [_normal, _heavy_tails, _stalls])
def test_intervals_of_95_percent_cover_the_truth_in_93_to_97_percent_of_1000_runs(noise: Noise) -> None:
    intervals = [paired_speedup(single, parallel) for single, parallel in _runs(noise, 1000)]
    covered = sum(interval.lower <= 2.0 <= interval.upper for interval in intervals)
    assert 930 <= covered <= 970


def test_pairs_tell_more_than_the_same_times_unpaired_on_a_machine_that_wanders() -> None:
    times = list(_runs(_stalls, 20, pairs=200))
    paired = [relative_half_width(paired_speedup(*run)) for run in times]
    unpaired = [relative_half_width(unpaired_speedup(*run)) for run in times]
    assert np.median(unpaired) > 3.0 * np.median(paired)


def _wandering_ratio(random: np.random.Generator, pairs: int, correlated: float) -> Any:
    """Times whose log ratios follow an autoregression of first order about that of 2."""
    logs = np.zeros(pairs)
    for index, step in enumerate(random.normal(0.0, 0.02, pairs)):
        logs[index] = step + (correlated * logs[index - 1] if index else 0.0)
    return 2 * _MS * np.exp(logs), np.full(pairs, _MS)


def test_pairs_that_hang_together_are_seen_to_and_those_that_do_not_are_not() -> None:
    random = np.random.default_rng(1)
    together = correlation(*_wandering_ratio(random, 2000, 0.7))
    assert together.value == pytest.approx(0.7, abs=0.1)
    assert together.widens == pytest.approx(math.sqrt((1 + together.value) / (1 - together.value)))
    assert correlation(*_wandering_ratio(random, 200, 0.0)).widens == 1.0
    assert correlation(*_wandering_ratio(random, 200, -0.7)).widens == 1.0, "it would make the interval narrower"
    assert correlation([2] * 10, [1] * 10).value == 0.0


def test_of_pairs_that_hang_together_the_wider_interval_covers_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(2)
    covered = covered_without = 0
    for _ in range(400):
        times = _wandering_ratio(random, 100, 0.5)
        found = paired_speedup(*times)
        covered += found.lower <= 2.0 <= found.upper
        half = math.log(found.upper / found.value) / correlation(*times).widens
        covered_without += abs(math.log(found.value / 2.0)) <= half
    assert covered >= 0.9 * 400
    assert covered_without < 0.85 * 400
