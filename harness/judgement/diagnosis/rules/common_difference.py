"""The differences have something in common: one number is added, the signs are others, or some shards alone differ."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.judgement.diagnosis.layout import shards_that_differ
from harness.judgement.diagnosis.leaves import changes_of, explained_by_change, place_of, wrong_rows
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import factor_text, first_upper, listed

_SIGNS = (
    "if a decomposition does not determine the signs, choose them alike in both programs: for QR, multiply the rows of "
    "R and the columns of Q by the signs of R's diagonal"
)


def _claims(question: Question) -> Iterator[Cause]:
    wrong = question.wrong
    pairs = [(leaf, pair) for leaf in wrong if (pair := changes_of(leaf)) is not None and pair[0].size > 1]
    if wrong and len(pairs) == len(wrong):
        names, place = listed([leaf.name for leaf in wrong]), place_of(question, wrong[0])
        if all(_is_shifted(leaf, *pair) for leaf, pair in pairs):
            have, want = pairs[0][1]
            yield Cause(f"every element of {names} is off by {factor_text(float(np.mean(have - want)))}", place)
            return
        if all(explained_by_change(leaf, np.copysign(want, have)) for leaf, (have, want) in pairs):
            sentence = f"some elements of {names} have the opposite sign, and are otherwise right"
            yield Cause(sentence, place, next_step=_SIGNS)
            return
    for layout, shards, rows in shards_that_differ(question):
        if all(set(wrong_rows(leaf)).issuperset(rows) for leaf in wrong):
            whose, others = layout.whose(question, shards), "shards" if layout.is_of_devices(question) else "rows"
            sentence = f"only {whose} {'differs' if len(rows) == 1 else 'differ'}; the other {others} are right"
            yield Cause(first_upper(sentence), place_of(question, wrong[0]), rows=tuple(rows))
            return


def _is_shifted(leaf: Leaf, have: Array, want: Array) -> bool:
    """Whether each element is off by the same number."""
    offset = float(np.mean(have - want))
    return bool(np.isfinite(offset)) and explained_by_change(leaf, want + offset)


RULE = Rule("C412", "common-difference", "a constant added, other signs, or some shards alone", _claims)
