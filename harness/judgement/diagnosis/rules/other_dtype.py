"""The values are right, and the dtype is another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.judgement.diagnosis.leaves import place_of
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.tolerance import epsilon_of


def _claims(question: Question) -> Iterator[Cause]:
    pairs = [(leaf, leaf.found, leaf.expected) for leaf in question.wrong]
    for _, found, expected in pairs:
        if found is None or expected is None or found.dtype == expected.dtype or found.shape != expected.shape:
            return
        if not np.issubdtype(found.dtype, np.number) or not np.issubdtype(expected.dtype, np.number):
            return
        coarse = max(epsilon_of(found.dtype), epsilon_of(expected.dtype))
        size = float(np.max(np.abs(expected), initial=0.0))
        if not np.allclose(found, expected, rtol=0.0, atol=64.0 * coarse * size, equal_nan=True):
            return
    if pairs:
        leaf, found, expected = pairs[0]
        assert found is not None
        assert expected is not None
        yield Cause(
            f"{leaf.name} is cast to {found.dtype}: its values match the reference's, which are {expected.dtype}",
            place_of(question, leaf),
            next_step=f"return {expected.dtype} from both programs",
        )


RULE = Rule("C401", "other-dtype", "another dtype", _claims)
