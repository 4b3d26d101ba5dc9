"""A fast wrong program is no speedup: the outputs of both sides are compared."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from harness.errors import OutputsDiffer
from harness.speed.outputs import arrays_of, compare_outputs, default_tolerance, same_nest

Pair = namedtuple("Pair", ["loss", "gradients"])
_VALUES = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(3, 4)


def _compare(single: Any, parallel: Any, tolerance: float | None = None) -> list[str]:
    same_nest(single, parallel)
    return compare_outputs(arrays_of(single), arrays_of(parallel), tolerance)


def test_leaves_are_named_by_where_they_are() -> None:
    one = np.ones(1)
    assert list(arrays_of(one)) == ["output"]
    assert list(arrays_of([one])) == ["output[0]"]
    assert list(arrays_of({"b": one, "a": (one, Pair(one, [one]))})) == [
        "output['a'][0]",
        "output['a'][1].loss",
        "output['a'][1].gradients[0]",
        "output['b']",
    ]


@dataclass
class Fields:
    loss: Any
    gradients: Any


def test_the_fields_of_an_object_are_outputs() -> None:
    one, other = Fields(np.ones(1), [_VALUES]), Fields(np.ones(1), [_VALUES])
    assert list(arrays_of(one)) == ["output.loss", "output.gradients[0]"]
    assert _compare(one, other) == []
    other.gradients = [_VALUES + 1]
    with pytest.raises(OutputsDiffer, match=r"^output.gradients\[0\]: 12 of 12 elements differ"):
        _compare(one, other)
    with pytest.raises(OutputsDiffer, match="`single` returns a Fields, `parallel` returns a ndarray"):
        _compare(one, _VALUES)


@pytest.mark.parametrize(
    "same",
    [
        _VALUES,
        {"loss": np.float32(1.0), "gradients": [_VALUES, None]},
        np.array([1, 2]),
        np.array([True]),
        np.array(["a", "b"]),
        np.array([np.inf, -np.inf, 1.0]),
        np.array(1.0),
        np.array([1 + 2j]),
    ],
)
def test_what_is_the_same_passes(same: Any) -> None:
    assert _compare(same, same) == []


def test_another_order_of_summation_is_no_difference() -> None:
    assert _compare(_VALUES, _VALUES * (1.0 + 1e-5) + np.float32(1e-6)) == []


@pytest.mark.parametrize(
    ("single", "parallel", "why"),
    [
        (_VALUES, _VALUES[:2], r"^output: `single` has shape \(3, 4\), `parallel` \(2, 4\)"),
        (_VALUES, _VALUES.astype(np.float64), "^output: `single` has dtype float32, `parallel` float64"),
        ([_VALUES, _VALUES], [_VALUES, -_VALUES], r"^output\[1\]: 12 of 12 elements differ .* worst at \[0, 0\]"),
        (
            np.array([1, 2]),
            np.array([1, 3]),
            r"1 of 2 elements differ but must be equal; worst at \[1\]: `single` 2, ",
        ),
        ({"a": _VALUES}, {"b": _VALUES}, r"`single` returns \{'a': a ndarray\}, `parallel` returns \{'b': a ndarray\}"),
        ([_VALUES], [_VALUES, _VALUES], "a list of 1, `parallel` returns a list of 2"),
        ([_VALUES, None], [_VALUES, _VALUES], "`single` returns None, and `parallel` does not"),
        ([_VALUES, _VALUES], [_VALUES, None], "`parallel` returns None, and `single` does not"),
        (np.array([1.0, np.inf]), np.array([1.0, -np.inf]), r"worst at \[1\]: `single` inf, `parallel` -inf"),
        (np.array([1.0, 2.0]), np.array([1.0, np.nan]), r"worst at \[1\]: `single` 2.0, `parallel` nan"),
        (np.array([1.0, np.nan]), np.array([1.0, 2.0]), r"worst at \[1\]: `single` nan, `parallel` 2.0"),
        (np.array(1.0), np.array(2.0), r"the values differ by more than .*: `single` 1.0, `parallel` 2.0"),
    ],
)
def test_a_difference_is_refused_and_named(single: Any, parallel: Any, why: str) -> None:
    with pytest.raises(OutputsDiffer, match=why):
        _compare(single, parallel)


@pytest.mark.parametrize("nothing", [[], None, np.array([np.nan, np.nan]), np.zeros((0, 3))])
def test_nothing_to_compare_is_no_agreement(nothing: Any) -> None:
    with pytest.raises(OutputsDiffer, match="no element can be compared"):
        _compare(nothing, nothing)


def test_elements_that_are_nan_on_both_sides_are_told_of() -> None:
    values = np.array([1.0, np.nan, 2.0])
    assert _compare(values, values) == ["output is NaN in 1 of 3 elements, which cannot be compared"]


def test_a_tolerance_of_ones_own() -> None:
    assert _compare(np.array([1.0, 1.0]), np.array([1.0, 1.01]), tolerance=0.01) == []
    with pytest.raises(OutputsDiffer, match="1 of 2 elements"):
        _compare(np.array([1.0, 1.0]), np.array([1.0, 1.03]), tolerance=0.01)


def test_the_default_tolerance_is_half_of_the_digits() -> None:
    assert default_tolerance(np.float32) == pytest.approx(3.45e-4, rel=1e-3)
    assert default_tolerance(np.float64) == pytest.approx(1.49e-8, rel=1e-2)
    assert default_tolerance(np.int32) == 0.0
