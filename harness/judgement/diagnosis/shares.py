"""How much each row, or each part of the batch, counts in a result: not at all, or several times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from harness.judgement.diagnosis.layout import Layout, partitions
from harness.judgement.diagnosis.question import Array, Cause, Question
from harness.judgement.diagnosis.wording import factor_text, first_upper, rows_text

#: How far a share may be from a whole number of times.
NEAR = 1e-3


def odd_shares(
    question: Question, shares: Array, parts: Sequence[Sequence[int]], name: str, place: str | None
) -> Iterator[Cause]:
    """Say which parts count in another way than most."""
    counts = Counter(np.round(shares[np.isfinite(shares)], 3).tolist())
    usual = max(counts, key=lambda share: (abs(share) > NEAR, counts[share]), default=0.0)
    others = [share for share in counts if abs(share - usual) > NEAR]
    if abs(usual) <= NEAR or len(others) != 1:
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
