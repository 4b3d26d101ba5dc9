"""Bounds of single ops: right results in any order are within them, and a wrong digit is not; kinds of disagreement."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from harness.hardware.arithmetic.bounds import Allowed, coarse_as_tf32, exact, rounded, summed, transformed
from harness.hardware.arithmetic.judge import deviation, odd_ones
from harness.hardware.bits import changed_bits

N = 512


def _product(dtype: str, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Two matrices of a dtype, and their product and its magnitude in float64."""
    random = np.random.default_rng(seed)
    a, b = (random.uniform(-1, 1, (N, N)).astype(dtype) for _ in range(2))
    wide = a.astype(np.float64), b.astype(np.float64)
    return a, b, wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])


def _one_by_one(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """The product in float32, added up from the last term to the first, with a rounding after each."""
    total = np.zeros((N, N), np.float32)
    for index in reversed(range(N)):
        total = total + np.outer(a[:, index], b[index]).astype(np.float32)
    return total


def test_a_product_is_within_its_bound_in_the_worst_order_and_a_wrong_digit_is_not() -> None:
    a, b, reference, magnitude = _product("float32")
    allowed = summed(reference, magnitude, N, "float32")
    for result in (a @ b, _one_by_one(a, b)):
        assert 0 < deviation(result.astype(np.float64), reference, allowed).share < 0.5
    wrong = (a @ b).astype(np.float64)
    wrong[3, 4] += 1e-2
    found = deviation(wrong, reference, allowed)
    assert (found.count, found.index) == (1, (3, 4))


def test_products_of_short_dtypes_may_be_rounded_in_parts_and_no_more() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16):
        a, b, reference, magnitude = _product(dtype)  # type: ignore[arg-type]
        allowed = summed(reference, magnitude, N, np.dtype(dtype).name)
        wide = a.astype(np.float32), b.astype(np.float32)
        halves = [(wide[0][:, part] @ wide[1][part]).astype(dtype) for part in (slice(0, 256), slice(256, N))]
        for result in ((wide[0] @ wide[1]).astype(dtype), (halves[0] + halves[1]).astype(dtype)):
            assert deviation(result.astype(np.float64), reference, allowed).count == 0
        assert deviation(reference + 8 * np.sqrt(np.mean(reference**2)) * 2.0**-5, reference, allowed).count > N


def _tf32(array: NDArray[Any]) -> NDArray[Any]:
    """Rounded to 11 bits."""
    mantissa, exponent = np.frexp(array.astype(np.float64))
    return np.ldexp(np.round(mantissa * 2**11) / 2**11, exponent)


def test_tf32_is_told_from_float32_and_is_within_its_own_bound_alone() -> None:
    a, b, reference, magnitude = _product("float32")
    coarse = (_tf32(a) @ _tf32(b)).astype(np.float32).astype(np.float64)
    fine = (a @ b).astype(np.float64)
    assert coarse_as_tf32(coarse, reference)
    assert not coarse_as_tf32(fine, reference)
    assert not coarse_as_tf32(_one_by_one(a, b).astype(np.float64), reference)
    assert deviation(coarse, reference, summed(reference, magnitude, N, "float32", tf32=True)).count == 0
    assert deviation(coarse, reference, summed(reference, magnitude, N, "float32")).count > N
    fine[:5] += 1
    assert not coarse_as_tf32(fine, reference), "some wrong elements are no other arithmetic"


def test_a_transform_is_judged_by_the_norm_of_each_row() -> None:
    random = np.random.default_rng(0)
    a = (random.normal(size=(8, 1024)) + 1j * random.normal(size=(8, 1024))).astype(np.complex64)
    reference = np.fft.fft(a.astype(np.complex128))
    allowed = transformed(reference, "complex64")
    right = reference.astype(np.complex64).astype(np.complex128)
    assert 0 < deviation(right, reference, allowed).share < 1
    wrong = right.copy()
    wrong[5, 100] += 1
    found = deviation(wrong, reference, allowed)
    assert (found.count, found.index) == (1, (5,))
    assert found.found.startswith("norm ")


def test_roundings_one_after_the_other_add_up() -> None:
    values = np.linspace(0.5, 2, 1000)
    single = values.astype(np.float32).astype(np.float64)
    assert deviation(single, values, rounded(values, 1, "float32")).count == 0
    assert deviation(values * (1 + 2.0**-22), values, rounded(values, 1, "float32")).count == 1000
    assert deviation(values * (1 + 2.0**-22), values, rounded(values, 8, "float32")).count == 0


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 3.0])
def test_what_is_not_finite_or_not_exact_is_beyond_an_exact_bound(wrong: float) -> None:
    reference = np.array([1.0, 2.0])
    assert deviation(reference, reference, exact()).share == 0
    found = deviation(np.array([1.0, wrong]), reference, exact())
    assert (found.count, found.index, found.share) == (1, (1,), np.inf)
    assert deviation(np.array([1.0, wrong]), reference, Allowed(np.full(2, 1e-3))).count == 1


def test_another_shape_is_wrong_everywhere() -> None:
    assert deviation(np.zeros(3), np.zeros(4), exact()).count == 4
    assert changed_bits(np.zeros(3), np.zeros(4)).elements == 4
    assert changed_bits(np.zeros(3), np.zeros(3, np.float32)).elements == 3


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "int32", "complex64", "complex128"])
def test_bits_are_compared_as_bits(dtype: str) -> None:
    array = np.ones((3, 4), dtype)
    assert changed_bits(array, array.copy()).elements == 0
    other = array.copy()
    raw = other.view(np.uint8).reshape(-1)
    raw[-1] ^= 1
    found = changed_bits(array, other)
    assert (found.elements, found.index) == (1, (2, 3))
    if dtype.startswith("float"):
        assert changed_bits(np.full(2, np.nan, dtype), np.full(2, np.nan, dtype)).elements == 0
        assert changed_bits(np.zeros(2, dtype), -np.zeros(2, dtype)).elements == 2


def test_the_odd_one_is_who_differs_from_more_than_half() -> None:
    assert odd_ones({"a": "1", "b": "1", "c": "1"}) == ((), True)
    assert odd_ones({"a": "1", "b": "2", "c": "1"}) == (("b",), True)
    assert odd_ones({"a": "1", "b": "2"}) == (("a", "b"), False)
    assert odd_ones({"a": "1", "b": "2", "c": "1", "d": "2"}) == (("a", "b", "c", "d"), False)
    assert odd_ones({"a": "1", "b": "2", "c": "3"}) == (("a", "b", "c"), False)
