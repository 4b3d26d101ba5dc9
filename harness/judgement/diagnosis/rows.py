"""Rows that are missing, doubled, in another order, zero, or wrong in one shard only."""

from __future__ import annotations

import numpy as np

from harness.judgement.diagnosis.question import Array, Leaf
from harness.judgement.tolerance import epsilon_of
from harness.judgement.values import wide


def rows_of(leaf: Leaf) -> list[int] | None:
    """For each row of what was found, the row of the reference that it is; ``None`` where a row is none of them."""
    found, expected = leaf.found, leaf.expected
    if found is None or expected is None or not found.ndim or found.shape[1:] != expected.shape[1:]:
        return None
    if found.ndim != expected.ndim or not expected.size:
        return None
    if found.dtype.kind in "OSU":
        return _places(comparable(found), comparable(expected))
    epsilon = epsilon_of(found.dtype)
    if found.dtype.kind not in "fciub" and not epsilon:
        return None
    have, want = (comparable(array).reshape(len(array), expected[0].size) for array in (found, expected))
    off = (1e-4 if 0.0 < epsilon < 1e-5 else 64.0 * epsilon) * float(np.max(np.abs(want)))
    places: list[int] = []
    for number, row in enumerate(have):
        error = np.max(np.abs(want - row), axis=1)
        near = np.flatnonzero(error <= off)
        if not len(near):
            return None
        follow = places[-1] + 1 if places else number
        choice = number if number in near else follow if follow in near else int(near[np.argmin(error[near])])
        places.append(int(choice))
    return places


def comparable(array: Array) -> Array:
    """Texts instead of references to them, and all numbers in the widest dtype of their kind."""
    if array.dtype.kind in "OSU":
        return array.astype("S") if array.dtype.kind == "O" else array
    return wide(array)


def _places(found: Array, expected: Array) -> list[int] | None:
    """For each row of texts, the row of the reference that it is; ``None`` where one is in no row."""
    places: list[int] = []
    for number, row in enumerate(found):
        near = [other for other, wanted in enumerate(expected) if np.array_equal(row, wanted)]
        if not near:
            return None
        places.append(number if number in near else near[0])
    return places


def telling(leaf: Leaf) -> bool:
    """Whether the rows of the reference can be told apart."""
    assert leaf.expected is not None
    rows = {row.tobytes() for row in comparable(leaf.expected)}
    return len(rows) > max(1, int(leaf.expected.shape[0]) // 2)
