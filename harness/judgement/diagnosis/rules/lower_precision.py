"""The errors are those of a coarser dtype that the program casts to, and the reference does not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import factor_text
from harness.judgement.tolerance import epsilon_of, epsilon_of_name
from harness.judgement.values import wide


def _claims(question: Question) -> Iterator[Cause]:
    for (before, after), place in question.seen.coarser.items():
        if (before, after) in question.seen_reference.coarser:
            continue
        shares = [_of_rounding(leaf, epsilon_of_name(after)) for leaf in question.wrong]
        known = [share for share in shares if share is not None]
        if known and len(known) == len(shares):
            largest = max(known)
            yield Cause(
                f"part of the program computes in {after} instead of {before}: the errors, up to "
                f"{factor_text(largest)} times the largest element, are rounding errors of {after}",
                place,
            )
            return


def _of_rounding(leaf: Leaf, coarse: float) -> float | None:
    """The error as a share of the largest element, where rounding to ``coarse`` explains it."""
    found, expected = leaf.found, leaf.expected
    if found is None or expected is None or found.shape != expected.shape or not epsilon_of(found.dtype):
        return None
    want, fine = wide(expected), epsilon_of(found.dtype)
    error = np.abs(wide(found) - want)
    if not np.all(np.isfinite(error)) or np.any(error > leaf.sensitivity().bound(want, fine) * (coarse / fine)):
        return None
    scale = float(np.max(np.abs(want), initial=0.0))
    return float(np.max(error)) / scale if scale else None


RULE = Rule("C408", "lower-precision", "lower precision", _claims)
