from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from harness.errors import UsageError
from harness.strategies import batches, explore, sample


def rows_of(batch: dict[str, Any], axis: int = 0) -> int:
    sizes = {array.shape[axis] for array in batch.values()}
    assert len(sizes) == 1, f"sizes differ: {sizes}"
    return int(sizes.pop())


def test_batches_are_empty_small_even_and_mostly_uneven() -> None:
    rows = [rows_of(batch) for batch in sample(batches(("x",), devices=4, max_features=1), 400)]
    kinds = Counter(
        "empty" if n == 0 else "one" if n == 1 else "few" if n < 4 else "even" if n % 4 == 0 else "uneven" for n in rows
    )
    assert min(kinds[kind] for kind in ("empty", "one", "few", "even", "uneven")) >= 10, kinds


@pytest.mark.cases(1)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_no_axis_of_a_batch_has_the_size_of_another(axis: int) -> None:
    for batch in sample(batches(("x", "y"), axis=axis), 60):
        rows = rows_of(batch, axis)
        features = []
        for array in batch.values():
            assert len(set(array.shape)) == array.ndim
            shape = list(array.shape)
            assert shape.pop(axis) == rows
            features += shape
        assert len(set(features)) == len(features)


def test_batches_have_the_types_asked_for_and_finite_values() -> None:
    dtypes = ("float32", "float64", "float16", "bfloat16", "int32", "int64")
    seen: Counter[str] = Counter()
    for batch in sample(batches(dtypes=dtypes, max_features=1), 80):
        for array in batch.values():
            seen[array.dtype.name] += 1
            assert (abs(array.astype("float64")) <= 2.0**20).all()
    assert min(seen[dtype] for dtype in dtypes) >= 5


def test_exact_batches_hold_whole_numbers_and_others_do_not() -> None:
    def whole(exact: bool) -> bool:
        drawn = sample(batches(exact=exact, min_rows=2), 30)
        return all((array % 1 == 0).all() for batch in drawn for array in batch.values())

    assert whole(exact=True)
    assert not whole(exact=False)


def test_batches_shrink_to_the_fewest_rows_that_fail() -> None:
    def fails_from_three_rows(batch: dict[str, Any]) -> None:
        assert rows_of(batch) < 3

    failure = explore(fails_from_three_rows, batches(devices=4), examples=40).failure
    assert failure is not None
    assert {name: array.shape for name, array in failure.example.items()} == {"x": (3,), "y": (3,)}


@pytest.mark.parametrize(
    "options",
    [
        {"names": ()},
        {"dtypes": ()},
        {"devices": 0},
        {"axis": 2},
        {"axis": 1, "max_features": 0},
        {"max_features": 4},
        {"min_rows": -1},
        {"min_rows": 9, "max_rows": 8},
        {"dtypes": ("complex64",)},
    ],
)
def test_options_that_make_no_batch_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="accepted"):
        batches(**options)
