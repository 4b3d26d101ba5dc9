"""The comparison of two training runs, with made-up runs."""

from __future__ import annotations

import numpy as np
import pytest

from harness.checking.tally import Tally
from harness.checks.trajectory import Array, Trajectory, compare
from harness.distribute.compare import ROUNDING_FACTOR, bounds
from harness.records import Verdict

STEPS, WEIGHTS = 50, 7
ROUNDING = 1e-6


def noise(seed: int, size: float = ROUNDING) -> Array:
    return np.random.default_rng(seed).uniform(-size, size, (STEPS, WEIGHTS))


def smooth() -> Array:
    return np.outer(np.linspace(1, 2, STEPS), np.linspace(-1, 1, WEIGHTS))


def trajectory(values: Array) -> Trajectory:
    return Trajectory.of(list(values[:, 0]), list(values), list(values))


def judged(sharded: Array, single: Array, exact: Array) -> Tally:
    tally = Tally()
    compare(trajectory(sharded), trajectory(single), trajectory(exact), tally)
    return tally


def test_two_roundings_of_one_run_are_the_same() -> None:
    tally = judged(smooth() + noise(1), smooth() + noise(2), smooth())
    outcome = tally.result("same", "")
    assert outcome.verdict is Verdict.PASS
    assert outcome.exercised.values == STEPS * (1 + WEIGHTS)
    assert outcome.exercised.gradients == STEPS * WEIGHTS
    assert 0 < outcome.measured["largest_share_of_bound_weights"] < 1


def test_a_run_that_leaves_the_other_is_found_at_the_step_where_it_does() -> None:
    sharded = smooth() + noise(1)
    sharded[20:, 3] += 1e-3
    findings = judged(sharded, smooth() + noise(2), smooth()).findings
    assert [finding.kind for finding in findings] == ["gradient", "value"]
    assert all("step 20" in finding.where for finding in findings)
    assert "gradients differ by 0.000999" in findings[0].message


def test_the_bound_follows_what_rounding_does_to_this_very_run() -> None:
    far = smooth() + noise(1)
    far[-1] += 1e-3
    assert judged(far, smooth() + noise(2, 1e-3), smooth()).findings == []
    assert judged(far, smooth() + noise(2, 1e-7), smooth()).findings != []


def test_a_few_units_in_the_last_place_are_nothing_where_both_dtypes_agree() -> None:
    ulp = float(np.finfo(np.float32).eps)
    assert judged(smooth() + 4 * ulp, smooth(), smooth()).findings == []
    assert judged(smooth() + 1000 * ulp, smooth(), smooth()).findings != []


def test_the_bound_never_falls_while_training_goes_on() -> None:
    single = smooth()
    single[10] += 1e-3
    bound = bounds(single, [smooth()], float(np.finfo(np.float32).eps))
    assert (np.diff(bound) >= 0).all()
    assert bound[9] < 1e-4
    assert bound[10] == pytest.approx(ROUNDING_FACTOR * 1e-3, rel=0.01)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_found(bad: float) -> None:
    sharded = smooth()
    sharded[30, 2] = bad
    findings = judged(sharded, smooth() + noise(2), smooth()).findings
    assert findings
    assert all("step 30" in finding.where for finding in findings)


def test_a_single_device_run_that_is_not_finite_proves_nothing() -> None:
    single = smooth()
    single[5:] = np.nan
    tally = judged(single, single, smooth())
    outcome = tally.result("same", "")
    assert outcome.verdict is Verdict.UNKNOWN
    assert "not finite" in outcome.reason


def test_a_run_of_other_length_is_found() -> None:
    findings = judged(smooth()[:-1], smooth(), smooth()).findings
    assert {finding.kind for finding in findings} == {"shape"}
