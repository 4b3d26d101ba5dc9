"""Some rows of the inputs' gradients are the reference's times a factor; the other rows are equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from harness.judgement.diagnosis.layout import Layout, partitions
from harness.judgement.diagnosis.leaves import changes_of, explained_by_change, place_of
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import factor_text, first_upper, rows_text

#: How far a share may be from a whole number of times.
NEAR = 1e-3


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


def odd_shares(
    question: Question, shares: Array, parts: Sequence[Sequence[int]], name: str, place: str | None
) -> Iterator[Cause]:
    """Say which parts count in another way than most."""
    counts = Counter(np.round(shares[np.isfinite(shares)], 3).tolist())
    # Rows with a share of 1 are right, however few they are.
    usual = max(counts, key=lambda share: (share == 1.0, abs(share) > NEAR, counts[share]), default=0.0)
    others = [share for share in counts if abs(share - usual) > NEAR]
    if abs(usual) <= NEAR or len(others) != 1 or (not name and usual != 1.0):
        return
    rows = [row for share, part in zip(shares, parts, strict=True) if abs(share - others[0]) <= NEAR for row in part]
    layout, own = _shards(question, rows)
    whose = layout.whose(question, own) if layout is not None and own else rows_text(rows)
    share = others[0] / usual
    if not name:
        what = "zero" if not others[0] else f"{factor_text(share)} times those of the single-device run"
        sentence = f"the gradients of {whose} are {what}; those of the other rows are right"
    elif not others[0]:
        sentence = f"{whose} {'does' if len(rows) == 1 else 'do'} not count in {name}"
    else:
        verb = "counts" if len(rows) == 1 else "count"
        sentence = f"{whose} {verb} {factor_text(share)} times as much in {name} as the other rows"
    yield Cause(first_upper(sentence), place, at_join=bool(name and own) and not others[0], rows=tuple(rows))


def _shards(question: Question, rows: Sequence[int]) -> tuple[Layout | None, list[int]]:
    """How the batch is split, and the shards that these are all rows of, if they are."""
    layout = next(partitions(question), None)
    shards = [at for at, own in enumerate(layout.shards) if set(own) & set(rows)] if layout is not None else []
    whole = layout is not None and sorted(row for at in shards for row in layout.shards[at]) == sorted(rows)
    return layout, shards if whole else []


RULE = Rule("C111", "shares-of-rows", "rows that count more or less than others", _claims)
