"""Each variable that differs is changed as the reference changes another one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.judgement.diagnosis.leaves import changes_of, explained_by_change, place_of, variables_text
from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule


def _claims(question: Question) -> Iterator[Cause]:
    partner: dict[str, Leaf] = {}
    for leaf in question.wrong:
        if leaf.part != "state" or leaf.start is None or leaf.found is None:
            return
        for other in question.leaves:
            if other is leaf or other.start is None or other.expected is None or other.start.shape != leaf.start.shape:
                continue
            if np.array_equal(other.expected, other.start) or changes_of(leaf) is None:
                continue
            if explained_by_change(leaf, other.expected.astype(np.float64) - other.start):
                partner[leaf.name] = other
    if partner and len(partner) == len(question.wrong):
        first = question.wrong[0]
        yield Cause(
            f"{variables_text([first])} gets the update of {variables_text([partner[first.name]])}: the gradients of "
            "another member, or another layer, are applied to it",
            place_of(question, first),
            next_step="pair each variable with its own gradient",
        )


RULE = Rule("C212", "update-of-another", "a variable with the update of another one", _claims, by="results")
