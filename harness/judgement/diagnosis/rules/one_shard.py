"""Only the rows of some shards differ: they are zero, a factor of the right ones, or shifted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from harness.judgement.diagnosis.layout import Layout, partitions
from harness.judgement.diagnosis.leaves import comparable, factor_of, place_of
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import first_upper
from harness.judgement.tolerance import epsilon_of


def claims(question: Question, *, anyhow: bool = False) -> Iterator[Cause]:
    """Only the rows of some shards differ: they are zero, a factor of the right ones, or shifted."""
    for layout in partitions(question):
        if layout.axis != 0 or len(layout.sizes) < 2:
            continue
        claims = [_claim(leaf, layout, anyhow=anyhow) for leaf in question.wrong]
        if not claims or claims[0] is None or any(claim != claims[0] for claim in claims):
            continue
        shards, rows, what = claims[0]
        one = len(rows) == 1
        whose, others = layout.whose(question, shards), "shards" if layout.is_of_devices(question) else "rows"
        sentence = f"{whose} {'is' if one else 'are'} {what}; the other {others} are right"
        if anyhow:
            sentence = f"only {whose} {'differs' if one else 'differ'}; the other {others} are right"
        yield Cause(first_upper(sentence), place_of(question, question.wrong[0]), rows=tuple(rows))
        return


def _claim(leaf: Leaf, layout: Layout, *, anyhow: bool) -> tuple[list[int], list[int], str] | None:
    """The shards whose rows alone are wrong in an output, these rows, and what became of them."""
    if leaf.part != "outputs" or leaf.found is None or leaf.expected is None:
        return None
    if leaf.found.shape != leaf.expected.shape or leaf.found.shape[:1] != (layout.rows,):
        return None
    wrong = set(_wrong_rows(leaf))
    shards = [number for number, rows in enumerate(layout.shards) if wrong.intersection(rows)]
    rows = sorted(row for number in shards for row in layout.shards[number])
    if not shards or len(shards) == len(layout.shards) or not wrong.issubset(rows):
        return None  # none or all of them, or the parts that were seen are not all of the batch
    what = _of_rows(leaf, rows)
    if what is None and anyhow and wrong.issuperset(rows):
        what = "wrong"
    return None if what is None else (shards, rows, what)


def _wrong_rows(leaf: Leaf) -> list[int]:
    assert leaf.found is not None
    assert leaf.expected is not None
    if leaf.found.dtype.kind in "OSU":
        return [row for row, one in enumerate(leaf.found) if not np.array_equal(one, leaf.expected[row])]
    have, want = comparable(leaf.found), comparable(leaf.expected)
    off = max(1e-5, 8.0 * epsilon_of(leaf.found.dtype)) * np.max(np.abs(want))
    bad = ~(np.abs(have - want).reshape(len(have), -1) <= off)
    return [int(row) for row in np.flatnonzero(bad.any(axis=1))]


def _of_rows(leaf: Leaf, rows: Sequence[int]) -> str | None:
    """What became of these rows, where it can be said in one word; it is checked against the numbers."""
    assert leaf.found is not None
    assert leaf.expected is not None
    part = leaf.found[list(rows)]
    if part.dtype.kind in "OSU":
        return None
    if np.issubdtype(part.dtype, np.inexact) and np.all(np.isnan(part)):
        return "NaN"
    if not np.any(part):
        return "zero: the result of the device does not arrive"
    if not epsilon_of(part.dtype) or np.iscomplexobj(part):
        return None
    have, want = part.astype(np.float64), leaf.expected[list(rows)].astype(np.float64)

    def tried(values: Array) -> bool:
        predicted = leaf.expected.copy()  # type: ignore[union-attr]
        predicted[list(rows)] = values
        return leaf.explained_by(predicted)

    if part.size > 1 and (ratio := factor_of(have, want)) is not None:
        if tried(ratio * want):
            return f"{ratio:.4g} times {'that' if len(rows) == 1 else 'those'} of the single-device run"
        offset = float(np.mean(have - want))
        if tried(want + offset):
            return f"off by {offset:.4g}"
    return None


RULE = Rule("C109", "one-shard", "one shard whose result is zero or scaled", claims)
