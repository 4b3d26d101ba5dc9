"""What hypotheses ask of results: whether another run explains them, what they are called, by how much they are off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.judgement.diagnosis.question import Array, Leaf
from harness.judgement.diagnosis.wording import listed
from harness.judgement.runs import Result
from harness.judgement.tolerance import epsilon_of

#: So many variables are named.
_MOST = 4


def explains(result: Result | None, leaves: Sequence[Leaf]) -> bool:
    """Whether another run has these results, and there are some."""
    return result is not None and bool(leaves) and all(leaf.explained_by(leaf.of(result)) for leaf in leaves)


def variables_text(leaves: Sequence[Leaf]) -> str:
    """The names of variables, without saying when they have their values."""
    return listed([leaf.name.removesuffix(" after the call") for leaf in leaves[:_MOST]])


def handle_of(variable: Any) -> int:
    """The id of a variable's handle, by which ops know it, or 0; of one of Keras, that of the variable in it."""
    held = variable if hasattr(variable, "handle") else getattr(variable, "value", None)
    return getattr(getattr(held, "handle", None), "_id", 0)


def changes_of(leaf: Leaf, *, whole: bool = False) -> tuple[Array, Array] | None:
    """What was found and what was expected, in float64; of a variable the changes.

    ``None`` where they have not the same shape, or are not real floating numbers, or ``whole`` ones.
    """
    found, expected = leaf.found, leaf.expected
    if found is None or expected is None or found.shape != expected.shape or np.iscomplexobj(found):
        return None
    if not epsilon_of(found.dtype) and not (whole and found.dtype.kind in "iu"):
        return None
    start = _start(leaf)
    return found.astype(np.float64) - start, expected.astype(np.float64) - start


def explained_by_change(leaf: Leaf, change: Array) -> bool:
    """Whether a result is this, or a variable its start with this change."""
    return leaf.found is not None and leaf.explained_by((_start(leaf) + change).astype(leaf.found.dtype))


def _start(leaf: Leaf) -> Array | float:
    return 0.0 if leaf.start is None else leaf.start.astype(np.float64)


def factor_of(have: Array, want: Array) -> float | None:
    """The factor, of numbers in float64, with which ``want`` comes nearest to ``have``; ``None`` if it is zero."""
    square = float(np.sum(want * want))
    return float(np.sum(have * want)) / square if square else None
