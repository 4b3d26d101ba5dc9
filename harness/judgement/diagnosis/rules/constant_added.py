"""Each element is off by the same number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.judgement.diagnosis.leaves import changes_of, explained_by_change, place_of
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import factor_text, listed


def _claims(question: Question) -> Iterator[Cause]:
    offsets = []
    for leaf in question.wrong:
        if (changes := changes_of(leaf)) is None or changes[0].size < 2:
            return
        have, want = changes
        offset = float(np.mean(have - want))
        if not np.isfinite(offset) or not explained_by_change(leaf, want + offset):
            return
        offsets.append(offset)
    if offsets:
        wrong = question.wrong
        sentence = f"every element of {listed([leaf.name for leaf in wrong])} is off by {factor_text(offsets[0])}"
        yield Cause(sentence, place_of(question, wrong[0]))


RULE = Rule("C412", "constant-added", "a constant added", _claims)
