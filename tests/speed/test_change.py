from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from synthetic_runs import times

from harness.errors import UsageError
from harness.speed.change import DEFAULT_SIGMA, UNCALIBRATED, Rules, Variation, change_between
from harness.speed.estimate import LogSpeedup, log_speedup

_NO_VARIATION = Variation(0.0, math.inf, "none")
_RULES = Rules()


def test_a_worked_example() -> None:
    # d = log 1.80 - log 1.90 = -0.0541; se = sqrt(0.003² + 0.004² + 2 · 0.005²) = sqrt(75e-6) = 0.00866;
    # no loss: z = -6.24; a loss of 5 %, log 0.95 = -0.0513: z = (-0.0541 + 0.0513) / 0.00866 = -0.32, p = 0.37.
    base, new = LogSpeedup(math.log(1.9), 0.003, 60, 10**9), LogSpeedup(math.log(1.8), 0.004, 60, 10**9)
    found = change_between(base, new, Variation(0.005, math.inf, "given"), _RULES)
    assert found.interval.value == pytest.approx(1.8 / 1.9 - 1)
    assert found.error == pytest.approx(0.00866, abs=1e-5)
    assert found.p_beyond == pytest.approx(0.374, abs=2e-3)
    # 99 % one-sided: 2.326 standard errors to either side.
    assert math.log1p(found.interval.lower) == pytest.approx(-0.05407 - 2.3263 * 0.00866, abs=1e-4)
    assert math.log1p(found.interval.upper) == pytest.approx(-0.05407 + 2.3263 * 0.00866, abs=1e-4)
    assert found.interval.confidence == pytest.approx(0.98)
    assert found.verdict == "worse"


def test_without_variation_between_runs_it_is_welch_s_test() -> None:
    base, new = LogSpeedup(0.64, 0.006, 60, 11), LogSpeedup(0.60, 0.011, 40, 23)
    found = change_between(base, new, _NO_VARIATION, _RULES)
    spreads = (0.011 * math.sqrt(24), 0.006 * math.sqrt(12))
    of_base = (0.64 + math.log(0.95), spreads[1], 12)
    scipy = stats.ttest_ind_from_stats(0.60, spreads[0], 24, *of_base, equal_var=False, alternative="less")
    assert found.p_beyond == pytest.approx(scipy.pvalue)


def test_an_estimated_variation_is_worth_less_than_a_given_one() -> None:
    base = new = LogSpeedup(0.64, 0.001, 60, 35)
    given = change_between(base, new, Variation(0.01, math.inf, ""), _RULES)
    estimated = change_between(base, new, Variation(0.01, 5, ""), _RULES)
    assert estimated.error == given.error
    assert estimated.interval.upper > given.interval.upper
    assert estimated.freedom == pytest.approx(5, rel=0.1)


@pytest.mark.parametrize(
    ("new", "verdict"), [(1.9, "same"), (1.85, "same"), (1.75, "worse"), (1.60, "worse"), (2.1, "better")]
)
def test_what_is_said_of_a_change(new: float, verdict: str) -> None:
    base = log_speedup(*times(1.9, seed=1))
    assert change_between(base, log_speedup(*times(new, seed=2)), UNCALIBRATED, _RULES).verdict == verdict


def test_a_loss_is_established_long_before_it_is_beyond_the_threshold() -> None:
    base, steady = log_speedup(*times(1.9, seed=1)), Variation(0.002, math.inf, "given")
    small = change_between(base, log_speedup(*times(1.86, seed=2)), steady, _RULES)
    assert (small.verdict, small.p_beyond > 0.99) == ("worse", True)
    large = change_between(base, log_speedup(*times(1.6, seed=2)), steady, _RULES)
    assert large.p_beyond < 0.01


def test_a_wide_interval_cannot_tell_and_says_how_many_more_pairs_would() -> None:
    base, new = (log_speedup(*times(1.9, scatter=0.2, seed=seed)) for seed in (1, 2))
    found = change_between(base, new, _NO_VARIATION, _RULES)
    assert found.verdict == "cannot tell"
    assert found.more is not None
    more = int(found.more.split()[2])
    assert found.more == f"needs about {more} more pairs than the 60 measured, and {more} more in the baseline"
    shorter = change_between(replace(base, pairs=30), new, _NO_VARIATION, _RULES)
    assert shorter.more == f"needs about {more} more pairs than the 60 measured, and {more // 2} more in the baseline"
    # With so many, it is told.
    share = 60 / (60 + more)
    enough = [LogSpeedup(0.64, each.error * math.sqrt(share), 60 + more, each.freedom) for each in (base, new)]
    assert change_between(enough[0], enough[1], _NO_VARIATION, _RULES).verdict == "same"
    fewer = [LogSpeedup(0.64, each.error * math.sqrt(share) * 1.03, 60, each.freedom) for each in (base, new)]
    assert change_between(fewer[0], fewer[1], _NO_VARIATION, _RULES).verdict == "cannot tell"


def test_no_number_of_pairs_helps_against_variation_between_runs() -> None:
    base = new = log_speedup(*times(1.9))
    found = change_between(base, new, Variation(0.05, math.inf, "calibrated 2026-01-01"), _RULES)
    assert found.verdict == "cannot tell"
    assert found.more is not None
    assert found.more.startswith("no number of pairs is enough: the speedup varies by ± 5.0% between runs (calibrated")
    assert "losses of 15.2% or more" in found.more


def test_times_that_are_all_the_same_divide_nothing_by_zero() -> None:
    base, new = log_speedup([4_000_000] * 20, [2_000_000] * 20), log_speedup([4_000_000] * 20, [2_500_000] * 20)
    found = change_between(base, new, _NO_VARIATION, _RULES)
    assert found.interval.value == pytest.approx(-0.2)
    assert found.verdict == "worse"
    assert found.p_beyond < 1e-100
    assert change_between(base, base, _NO_VARIATION, _RULES).verdict == "same"


def test_false_alarms_are_as_rare_as_the_confidence_says() -> None:
    # 4000 comparisons of the same speedup, which moves by sigma between runs: 1 % of them "worse", none beyond 5 %.
    draw = np.random.default_rng(0)
    values = 0.64 + draw.normal(0.0, math.hypot(DEFAULT_SIGMA, 0.004), (4000, 2))
    found = [
        change_between(LogSpeedup(a, 0.004, 60, 35), LogSpeedup(b, 0.004, 60, 35), UNCALIBRATED, _RULES)
        for a, b in values.tolist()
    ]
    worse = sum(each.verdict == "worse" for each in found)
    assert stats.binomtest(worse, 4000, 0.01).pvalue > 0.001
    assert not any(each.p_beyond <= 0.01 for each in found)


@pytest.mark.parametrize("rules", [{"threshold": 0.0}, {"threshold": 1.0}, {"confidence": 0.5}, {"confidence": 1.0}])
def test_rules_that_make_no_sense_are_refused(rules: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=rf"{next(iter(rules))}={next(iter(rules.values()))}; accepted: above"):
        Rules(**rules)
