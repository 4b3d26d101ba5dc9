"""The numbers are the reference's, but some have the opposite sign."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.judgement.diagnosis.leaves import changes_of, explained_by_change, place_of
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import listed


def _claims(question: Question) -> Iterator[Cause]:
    wrong = question.wrong
    for leaf in wrong:
        changes = changes_of(leaf)
        if changes is None or changes[0].size < 2 or not explained_by_change(leaf, np.copysign(*reversed(changes))):
            return
    if wrong:
        yield Cause(
            f"some elements of {listed([leaf.name for leaf in wrong])} have the opposite sign, and are otherwise right",
            place_of(question, wrong[0]),
            next_step="if a decomposition does not determine the signs, choose them alike in both programs: for QR, "
            "multiply the rows of R and the columns of Q by the signs of R's diagonal",
        )


RULE = Rule("C413", "other-signs", "other signs", _claims)
