"""An array's rows are found among many arrays, and nothing else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.judgement.diagnosis.lookup import Lookup, Rows
from harness.judgement.diagnosis.recorded import equal

_DTYPES = (np.float16, np.float32, np.float64, np.complex64, np.int32, np.uint8)


def _table(dtype: Any, shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).permutation(np.arange(np.prod(shape))).reshape(shape) + 1).astype(
        dtype
    )


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize(("shape", "axis"), [((9,), 0), ((6, 4), 0), ((6, 4), 1), ((3, 5, 4), 1)])
def test_rows_are_found_along_each_axis_and_a_changed_one_is_not(dtype: Any, shape: tuple[int, ...], axis: int) -> None:
    table = _table(dtype, shape, 1)
    known = Lookup[str]()
    known.add(_table(dtype, (7, *shape), 2), "larger")
    known.add(table, "table")
    numbers = (1, 2, 3) if len(shape) == 1 else (2, 0)
    rows = np.take(table, numbers, axis)
    assert next(known.with_rows(rows)) == ("table", Rows(axis, numbers, shape[axis]))
    assert [owner for owner, _ in known.with_these_rows(rows, axis, numbers)] == ["table"]
    changed = rows.copy()
    changed.reshape(-1)[-1] += changed.dtype.type(100)
    assert not list(known.with_rows(changed))
    assert not list(known.with_these_rows(changed, axis, numbers))


def test_whole_numbers_are_found_whatever_their_number_of_bits_and_floats_are_not() -> None:
    known = Lookup[str]()
    known.add(np.arange(8, dtype=np.int64), "wide")
    assert list(known.equal(np.arange(8, dtype=np.int32))) == ["wide"]
    assert next(known.with_rows(np.array([3, 4, 5], np.uint8))) == ("wide", Rows(0, (3, 4, 5), 8))
    assert not list(known.equal(np.arange(8, dtype=np.float64)))
    assert not list(known.equal(np.arange(1, 9, dtype=np.int32)))


def test_one_of_the_rows_is_found_unless_only_several_are_looked_for() -> None:
    known = Lookup[str]()
    table = _table(np.float32, (5, 3), 1)
    known.add(table, "table")
    assert list(known.with_rows(table[3])) == [("table", Rows(0, (3,), 5))]
    assert not list(known.with_rows(table[3], one=False))


def test_single_numbers_have_to_stand_in_a_row() -> None:
    known = Lookup[str]()
    known.add(np.arange(6.0), "counted")
    assert list(known.with_rows(np.array([2.0, 3.0]))) == [("counted", Rows(0, (2, 3), 6))]
    assert not list(known.with_rows(np.array([2.0, 4.0])))


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_equal_to_themselves(odd: float) -> None:
    table = _table(np.float32, (4, 3), 1)
    table[2, 1] = odd
    known = Lookup[str]()
    known.add(table, "table")
    assert [owner for owner, _ in known.with_rows(table[1:3])] == ["table"]
    assert list(known.equal(table.copy())) == ["table"]
    other = table.copy()
    other[2, 1] = 1.0
    assert not list(known.with_rows(other[1:3]))
    assert not list(known.equal(other))


def test_equal_arrays_may_differ_by_rounding_wherever_it_is() -> None:
    array = np.random.default_rng(0).normal(size=(40, 50)).astype(np.float32)
    known = Lookup[str]()
    known.add(array, "array")
    assert list(known.equal(array * np.float32(1 + 1e-7))) == ["array"]
    for place in ((0, 0), (17, 23), (39, 49)):
        other = array.copy()
        other[place] += 0.1
        assert not list(known.equal(other))


def test_beside_the_large_numbers_of_a_mask_others_are_still_told_apart() -> None:
    scores = np.array([[0.5, -1e9, -1e9], [0.25, 2.0, -1e9]], np.float32)
    rounded = scores * np.float32(1 + 1e-7)
    assert equal(rounded, scores)
    other = scores.copy()
    other[0, 0] = 0.75
    assert not equal(other, scores)
