from __future__ import annotations

import numpy as np

from harness.strategies.parts import integers, uniform


def test_numbers_are_the_same_for_ever() -> None:
    # Written down once: printed programs have to mean the same with every version of NumPy.
    assert (uniform(7, "x", (3,)) * 2**23).tolist() == [-1985433, -990674, -4046952]
    assert integers(7, "x", (5,), 10).tolist() == [8, 1, 7, 6, 3]


def test_numbers_depend_on_the_seed_and_on_the_name() -> None:
    first = uniform(1, "x", (4,)).tolist()
    assert uniform(1, "x", (4,)).tolist() == first
    assert uniform(2, "x", (4,)).tolist() != first
    assert uniform(1, "y", (4,)).tolist() != first


def test_numbers_stay_in_their_range_and_float32_holds_them() -> None:
    numbers = uniform(3, "x", (1000,))
    assert numbers.min() >= -1
    assert numbers.max() < 1
    assert (numbers.astype(np.float32) == numbers).all()
    assert set(integers(3, "x", (1000,), 5).tolist()) == {0, 1, 2, 3, 4}


def test_more_rows_begin_with_the_rows_of_fewer() -> None:
    assert (uniform(0, "x", (5, 3))[:2] == uniform(0, "x", (2, 3))).all()
