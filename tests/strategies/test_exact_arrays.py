from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from harness.errors import UsageError
from harness.strategies import DTYPES, exact_arrays, exact_magnitude, numpy_dtype, sample

ROWS = 16


def product_in(dtype: np.dtype[Any], a: NDArray[Any], b: NDArray[Any], order: list[int]) -> list[Any]:
    """A sum of products, rounded to the type after each step, in the given order."""
    total = np.zeros(a.shape[1], dtype)
    for index in order:
        total = (total + (a[index] * b[index]).astype(dtype)).astype(dtype)
    return [float(value) for value in total]


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_of_products_are_exact_in_every_order(dtype: str) -> None:
    kind = numpy_dtype(dtype)

    @settings(max_examples=25, deadline=None, database=None, derandomize=True)
    @given(
        exact_arrays((ROWS, 2), dtype, terms=ROWS),
        exact_arrays((ROWS, 2), dtype, terms=ROWS),
        st.permutations(range(ROWS)),
    )
    def exact(a: NDArray[Any], b: NDArray[Any], order: list[int]) -> None:
        assert a.dtype == kind
        expected = [float(value) for value in (a.astype(object) * b.astype(object)).sum(axis=0)]
        assert product_in(kind, a, b, order) == expected

    exact()


def test_the_largest_values_are_as_large_as_they_can_be() -> None:
    for dtype, terms in (("bfloat16", 16), ("float16", 16), ("float32", 4)):
        most = exact_magnitude(dtype, terms=terms)
        kind = numpy_dtype(dtype)
        for size, fits in ((most, True), (most + 1, False)):
            # Odd sums just below the limit need every bit: one more in magnitude, and the last one is rounded off.
            array = np.full((terms, 1), size).astype(kind)
            array[-1] = size - 1 if size > 1 else size
            expected = float((array.astype(object) * array.astype(object)).sum())
            exact = product_in(kind, array, array, list(range(terms))) == [expected]
            assert exact or not fits, (dtype, size)


def test_a_power_of_two_as_scale_keeps_sums_exact() -> None:
    for array in sample(exact_arrays((4, 3), "bfloat16", terms=4, scale=0.25), 20):
        assert (array.astype(np.float64) % 0.25 == 0).all()
        assert abs(array.astype(np.float64)).max() <= 0.25 * exact_magnitude("bfloat16", terms=4)


def test_values_differ_within_an_array_so_that_a_permutation_is_seen() -> None:
    arrays = sample(exact_arrays((6, 5), "float32"), 40)
    assert sum(len(np.unique(array)) >= 5 for array in arrays) >= 30


def test_shapes_can_be_drawn_and_zero_left_out() -> None:
    arrays = sample(exact_arrays(st.sampled_from([(2, 3), (5,)]), "int32", nonzero=True), 30)
    assert {array.shape for array in arrays} == {(2, 3), (5,)}
    assert all((array != 0).all() for array in arrays)
    assert sample(exact_arrays(3), 1)[0].shape == (3,)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (lambda: exact_arrays(3, "bfloat16", terms=257), "up to 256 terms"),
        (lambda: exact_arrays(3, "float32", terms=0), "terms=0"),
        (lambda: exact_arrays(3, "complex64"), "accepted: float32"),
        (lambda: exact_arrays(3, "float32", scale=0.3), "scale=0.3"),
        (lambda: exact_arrays(3, "float32", scale=2.0**-5), "2\\*\\*-4"),
        (lambda: exact_arrays(3, "int32", scale=0.5), "for integers, 1"),
    ],
)
def test_what_cannot_be_exact_is_refused(strategy: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        strategy()
