"""What rules ask of results: does another run explain them, which rows are they, how far off, and made where?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.judgement.diagnosis.question import Array, Leaf, Question
from harness.judgement.diagnosis.wording import listed
from harness.judgement.runs import Result
from harness.judgement.tolerance import epsilon_of
from harness.judgement.values import wide

#: So many variables are named.
_MOST = 4


def explains(result: Result | None, leaves: Sequence[Leaf]) -> bool:
    """Whether there are results, and another run has the same."""
    return result is not None and bool(leaves) and all(leaf.explained_by(leaf.of(result)) for leaf in leaves)


def variables_text(leaves: Sequence[Leaf]) -> str:
    """The names of variables, without saying when they have their values."""
    return listed([leaf.name.removesuffix(" after the call") for leaf in leaves[:_MOST]])


def handle_of(variable: Any) -> int:
    """The id of a variable's handle, by which ops know it, or 0. A Keras variable holds the one that has it."""
    held = variable if hasattr(variable, "handle") else getattr(variable, "value", None)
    return getattr(getattr(held, "handle", None), "_id", 0)


def is_real(array: Array) -> bool:
    """Whether an array has numbers, or booleans, that float64 can hold: neither complex ones nor texts."""
    return array.dtype.kind not in "cOSU"


def changes_of(leaf: Leaf, *, whole: bool = False) -> tuple[Array, Array] | None:
    """What was found and what was expected, in float64; for a variable, by how much each changed it.

    ``None`` if the shapes differ, or the numbers are not real and floating. ``whole`` accepts integers too.
    """
    found, expected = leaf.found, leaf.expected
    if found is None or expected is None or found.shape != expected.shape or np.iscomplexobj(found):
        return None
    if not epsilon_of(found.dtype) and not (whole and found.dtype.kind in "iu"):
        return None
    start = _start(leaf)
    return found.astype(np.float64) - start, expected.astype(np.float64) - start


def explained_by_change(leaf: Leaf, change: Array) -> bool:
    """Whether a result is ``change``, or a variable is its value at the start plus ``change``."""
    return leaf.found is not None and leaf.explained_by((_start(leaf) + change).astype(leaf.found.dtype))


def _start(leaf: Leaf) -> Array | float:
    return 0.0 if leaf.start is None else leaf.start.astype(np.float64)


def factor_of(have: Array, want: Array) -> float | None:
    """The factor that brings ``want`` nearest to ``have``; both are in float64. ``None`` if ``want`` is all zeros."""
    square = float(np.sum(want * want))
    return float(np.sum(have * want)) / square if square else None


def place_of(question: Question, leaf: Leaf) -> str | None:
    """Where the program under test makes a result, or writes to a variable."""
    seen = question.seen
    if leaf.part == "outputs" and leaf.index < len(seen.output_places):
        return seen.output_places[leaf.index]
    if leaf.part == "state":
        return seen.write_places.get(handle_of(question.watched[leaf.index]))
    return None


def written(question: Question, leaf: Leaf) -> int:
    """How often the program under test writes to a variable in one call."""
    return question.seen.writes[handle_of(question.watched[leaf.index])]


def outputs_alone(question: Question) -> list[Leaf]:
    """The differing outputs, if nothing else differs but gradients, which follow."""
    wrong = [leaf for leaf in question.wrong if leaf.part == "outputs" and leaf.found is not None]
    return wrong if len(wrong) == sum(leaf.part != "gradients" for leaf in question.wrong) else []


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


def wrong_rows(leaf: Leaf) -> list[int]:
    """The rows that differ of a result of the reference's shape."""
    assert leaf.found is not None
    assert leaf.expected is not None
    if leaf.found.dtype.kind in "OSU":
        return [row for row, one in enumerate(leaf.found) if not np.array_equal(one, leaf.expected[row])]
    have, want = comparable(leaf.found), comparable(leaf.expected)
    off = max(1e-5, 8.0 * epsilon_of(leaf.found.dtype)) * np.max(np.abs(want))
    bad = ~(np.abs(have - want).reshape(len(have), -1) <= off)
    return [int(row) for row in np.flatnonzero(bad.any(axis=1))]


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
