"""Some rows of the inputs' gradients are the reference's times a factor; the other rows are equal."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.judgement.diagnosis.leaves import changes_of, explained_by_change, place_of
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.shares import NEAR, odd_shares


def _claims(question: Question) -> Iterator[Cause]:
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    inputs = len(question.parallel.source_names()) - len(question.parallel.variables)
    gradients = [leaf for leaf in question.wrong if leaf.part == "gradients" and leaf.index < inputs]
    shares = [_shares(leaf) for leaf in gradients]
    first = shares[0] if shares else None
    if first is None or any(each is None or not np.allclose(each, first, atol=NEAR, equal_nan=True) for each in shares):
        return
    if any(leaf.found is None or leaf.found.shape[:1] == (len(first),) for leaf in outputs):
        return  # its own rows tell more
    name = outputs[0].name if outputs else ""
    place = place_of(question, outputs[0]) if outputs else None
    yield from odd_shares(question, first, [(row,) for row in range(len(first))], name, place)


def _shares(leaf: Leaf) -> Array | None:
    """The factor of each row's gradient; NaN where the gradient is zero."""
    if (changes := changes_of(leaf)) is None or not changes[0].ndim or len(changes[0]) < 2:
        return None
    have, want = (each.reshape(len(each), -1) for each in changes)
    squares = np.sum(want * want, axis=1)
    shares = np.where(squares > 0.0, np.sum(have * want, axis=1) / squares, np.nan)
    predicted = np.nan_to_num(shares)[:, np.newaxis] * want
    return shares if explained_by_change(leaf, predicted.reshape(changes[0].shape)) else None


RULE = Rule("C111", "shares-of-rows", "rows that count more or less than others", _claims)
