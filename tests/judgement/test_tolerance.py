from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from harness.judgement.exactness import is_exact
from harness.judgement.steps import changes
from harness.judgement.tolerance import LEAST_ULPS, Sensitivity, epsilon_of, move
from harness.judgement.values import largest_magnitude


@pytest.mark.parametrize(
    ("dtype", "epsilon"), [("float64", 2.0**-52), ("float32", 2.0**-23), ("float16", 2.0**-10), ("int32", 0.0)]
)
def test_epsilon_is_the_distance_from_one_to_the_next_number(dtype: str, epsilon: float) -> None:
    assert epsilon_of(np.dtype(dtype)) == epsilon


def test_bfloat16_has_an_epsilon_too() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert epsilon_of(np.dtype(ml_dtypes.bfloat16)) == 2.0**-7


def test_a_moved_array_differs_by_at_most_one_unit_in_the_last_place() -> None:
    array = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    moved = move(array, np.random.default_rng(1))
    assert moved.dtype == array.dtype
    steps = np.abs(moved.view(np.int32).astype(np.int64) - array.view(np.int32))
    assert steps.max() <= 2
    assert (steps > 0).mean() > 0.9


def test_the_bound_grows_with_the_measured_change_and_with_the_number_of_terms() -> None:
    reference = np.array([1.0, 1.0])
    small, large = Sensitivity(np.array([1e-7, 1e-7]), 4), Sensitivity(np.array([1e-6, 1e-6]), 4)
    assert np.all(small.bound(reference, 0.0) < large.bound(reference, 0.0))
    assert np.all(small.bound(reference, 0.0) < Sensitivity(small.change, 400).bound(reference, 0.0))


def test_what_is_no_difference_without_measuring_is_within_each_bound_that_is_measured() -> None:
    reference = np.array([1.0, -1e-3, 1e6])
    still = Sensitivity(np.zeros(3), 2)
    assert np.all(still.bound(reference, 2.0**-23) > LEAST_ULPS * 2.0**-23 * np.abs(reference))


def test_a_bound_is_finite_where_the_change_is_not() -> None:
    assert np.all(np.isfinite(Sensitivity(np.array([np.inf, np.nan]), 4).bound(np.array([1.0, np.inf]), 1e-7)))


def test_the_scale_of_results_is_that_of_the_largest_floating_one() -> None:
    assert largest_magnitude([np.full(2, 3.0), None, np.full(1, 50.0), np.array([99])]) == 50.0
    assert largest_magnitude([]) == 0.0


def test_the_scale_of_changes_leaves_out_what_is_not_trained_or_has_another_shape() -> None:
    before = [np.full(2, 1.0), np.full(1, 0.0), np.array([0]), np.full(2, 0.0)]
    after = [np.full(2, 3.0), np.full(1, 50.0), np.array([99]), np.full(1, 7.0)]
    trainable = (True, False, True, True)
    variables = [SimpleNamespace(dtype=end.dtype, trainable=own) for end, own in zip(after, trainable, strict=True)]
    assert [change.tolist() for change in changes(variables, before, after)] == [[2.0, 2.0]]


def test_small_integers_and_exact_ops_are_exact() -> None:
    values = np.arange(-8.0, 8.0, dtype=np.float32)
    assert is_exact([values], [values * 3], {"MatMul", "AddV2"})
    assert is_exact([values / 4], [values * 3 / 16], {"MatMul"})


def test_both_parts_of_complex_numbers_decide_whether_arithmetic_is_exact() -> None:
    values = np.array([1 + 2j, -3 + 4j], np.complex64)
    assert is_exact([values], [values * 3], {"MatMul"})
    assert not is_exact([values.real + 0.3j], [values], {"MatMul"})
    assert not is_exact([values], [values * 1e6j], {"MatMul"})


def test_what_rounds_is_not_exact() -> None:
    values = np.arange(-8.0, 8.0, dtype=np.float32)
    assert not is_exact([values], [values], {"MatMul", "Tanh"})
    assert not is_exact([values / 3], [values], {"MatMul"})
    assert not is_exact([values], [values * 1e6], {"MatMul"})
    assert not is_exact([np.array([np.nan], np.float32)], [values], {"MatMul"})
