"""Sizes that depend on an unknown number: what holds for every one of them is decided, and nothing else."""

from __future__ import annotations

from fractions import Fraction

import pytest

from harness.proof.sizes import Indivisible, Ratio, Size, Unprovable, coefficient, differs, inverse, less


def test_arithmetic_of_sizes() -> None:
    rows = Size((1, 4))
    assert rows + 3 == Size((4, 4))
    assert rows - rows == 0
    assert rows // 4 == Size((0, 1))
    assert rows % 4 == 1
    assert (rows * rows) // rows == rows
    with pytest.raises(Indivisible) as found:
        rows // 8
    assert found.value.divisor == 2


def test_only_what_holds_for_every_size_is_decided() -> None:
    m = Size((0, 1))
    assert less(0, m)
    assert not less(m, 1)
    assert less(m, m + 1)
    assert not differs(m, m)
    assert differs(m, 0)
    for undecided in (lambda: less(m, 3), lambda: differs(m, 2), lambda: less(m, 2 * m - 1)):
        with pytest.raises(Unprovable):
            undecided()


def test_coefficients_are_quotients_in_lowest_terms() -> None:
    m = Size((0, 1))
    assert coefficient(m * 4) * inverse(m * 8) == Fraction(1, 2)
    assert isinstance(coefficient(m) + 1, Ratio)
    assert inverse(m + 1) * coefficient(m + 1) == 1
    with pytest.raises(Unprovable):
        inverse(m - 3)
