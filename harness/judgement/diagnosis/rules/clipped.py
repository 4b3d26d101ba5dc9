"""Each element of an output is clipped to a range.

Elements inside the range are the reference's, and the others are one of its two bounds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.judgement.diagnosis.leaves import changes_of, explained_by_change, outputs_alone, place_of
from harness.judgement.diagnosis.question import Array, Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import factor_text, listed

#: So many elements have to be at one bound, and so many inside the range: one by itself is what it is by chance.
_LEAST = 2


def _claims(question: Question) -> Iterator[Cause]:
    wrong, texts = outputs_alone(question), []
    for leaf in wrong:
        changes = changes_of(leaf)
        if changes is None or not (text := _range_text(*changes)):
            return
        have, want = changes
        if not explained_by_change(leaf, np.clip(want, np.min(have), np.max(have))):
            return
        texts.append(f"{leaf.name} is clipped to {text}")
    if texts:
        yield Cause(f"every element of {listed(texts)}", place_of(question, wrong[0]))


def _range_text(have: Array, want: Array) -> str:
    """The range to which elements would be clipped, or nothing where too few are at a bound or inside."""
    if not have.size or not np.all(np.isfinite(have)):
        return ""
    low, high = np.min(have), np.max(have)
    # Elements that are equal in both may be the largest or the smallest without a bound there.
    raised, lowered = (want < low) & (have == low), (want > high) & (have == high)
    inside = np.count_nonzero((low < have) & (have < high))
    if min(inside, max(np.count_nonzero(raised), np.count_nonzero(lowered))) < _LEAST:
        return ""
    if np.any(raised) and np.any(lowered):
        return f"the range from {factor_text(float(low))} to {factor_text(float(high))}"
    bound = float(low if np.any(raised) else high)
    # That is a ReLU's, which the first op that differs names.
    return "" if not bound else f"at {'least' if np.any(raised) else 'most'} {factor_text(bound)}"


RULE = Rule("C415", "clipped", "clipped elements", _claims)
