"""How much each row, or each part of the batch, counts in a result: not at all, or several times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from harness.judgement.diagnosis.joins import PerShard
from harness.judgement.diagnosis.layout import Layout, partitions
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.scales import place_of
from harness.judgement.diagnosis.wording import factor_text, first_upper, rows_text
from harness.judgement.tolerance import epsilon_of

#: How far a share may be from a whole number of times.
_NEAR = 1e-3


def of_rows(question: Question) -> Iterator[Cause]:
    """Some rows of the inputs' gradients are the reference's times a factor; the other rows are equal."""
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    inputs = len(question.parallel.source_names()) - len(question.parallel.variables)
    gradients = [leaf for leaf in question.wrong if leaf.part == "gradients" and leaf.index < inputs]
    shares = [_shares(leaf) for leaf in gradients]
    first = shares[0] if shares else None
    if first is None or any(
        each is None or not np.allclose(each, first, atol=_NEAR, equal_nan=True) for each in shares
    ):
        return
    if any(leaf.found is None or leaf.found.shape[:1] == (len(first),) for leaf in outputs):
        return  # its own rows tell more
    name = outputs[0].name if outputs else ""
    place = place_of(question, outputs[0]) if outputs else None
    yield from _odd(question, first, [(row,) for row in range(len(first))], name, place)


def of_parts(question: Question) -> Iterator[Cause]:
    """The results are sums over the parts of the batch, in which some parts have a factor."""
    leaves = [leaf for leaf in question.wrong if leaf.part != "gradients"]
    for layout in partitions(question):
        shards = PerShard.run(question, layout) if leaves else None
        if shards is None:
            continue
        shares = [_coefficients(shards, leaf) for leaf in leaves]
        first = next((each for each in shares if each is not None), None)
        if first is not None and all(
            _follows(shards, leaf, first) if each is None else np.array_equal(each, first)
            for leaf, each in zip(leaves, shares, strict=True)
        ):
            place = place_of(question, leaves[0])
            yield from _odd(question, first, layout.shards, leaves[0].name, place)
            return


def _odd(
    question: Question, shares: Array, parts: Sequence[Sequence[int]], name: str, place: str | None
) -> Iterator[Cause]:
    """Say which parts count in another way than most."""
    counts = Counter(np.round(shares[np.isfinite(shares)], 3).tolist())
    usual = max(counts, key=lambda share: (abs(share) > _NEAR, counts[share]), default=0.0)
    others = [share for share in counts if abs(share - usual) > _NEAR]
    if abs(usual) <= _NEAR or len(others) != 1:
        return
    rows = [row for share, part in zip(shares, parts, strict=True) if abs(share - others[0]) <= _NEAR for row in part]
    share = others[0] / usual
    if not name:
        what = "zero" if not others[0] else f"{factor_text(share)} times those of the single-device run"
        sentence = f"the gradients of {_whose(question, rows)} are {what}; those of the other rows are right"
    elif not others[0]:
        sentence = f"{_whose(question, rows)} {'does' if len(rows) == 1 else 'do'} not count in {name}"
    else:
        verb = "counts" if len(rows) == 1 else "count"
        sentence = f"{_whose(question, rows)} {verb} {factor_text(share)} times as much in {name} as the other rows"
    lost = bool(name) and not others[0] and _of_shards(question, rows)
    yield Cause(first_upper(sentence), place, tuple(question.wrong), at_join=lost, rows=tuple(rows))


def _of_shards(question: Question, rows: Sequence[int]) -> bool:
    """Whether these are all rows of some shards."""
    layout: Layout | None = next(iter(partitions(question)), None)
    shards = [own for own in layout.shards if set(own) & set(rows)] if layout is not None else []
    return sorted(row for own in shards for row in own) == sorted(rows)


def _whose(question: Question, rows: Sequence[int]) -> str:
    """The rows, and the shards that they are all rows of."""
    layout: Layout | None = next(iter(partitions(question)), None)
    text = rows_text(rows)
    if layout is None:
        return text
    shards = [number for number, own in enumerate(layout.shards) if set(own) & set(rows)]
    if not _of_shards(question, rows):
        return text
    return layout.whose(question, shards)


def _shares(leaf: Leaf) -> Array | None:
    """The factor of each row's gradient; NaN where the gradient is zero."""
    found, expected = leaf.found, leaf.expected
    if found is None or expected is None or found.shape != expected.shape or found.ndim < 1 or len(found) < 2:
        return None
    if not epsilon_of(found.dtype) or np.iscomplexobj(found):
        return None
    have, want = (each.astype(np.float64).reshape(len(each), -1) for each in (found, expected))
    squares = np.sum(want * want, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(squares > 0.0, np.sum(have * want, axis=1) / squares, np.nan)
    predicted = np.nan_to_num(shares)[:, np.newaxis] * want
    return shares if leaf.explained_by(predicted.reshape(found.shape).astype(found.dtype)) else None


def _follows(shards: PerShard, leaf: Leaf, times: Array) -> bool:
    """Whether a result, with too few elements to tell, is such a sum of the shards' results, as the reference's is."""
    parts, found, expected = shards.parts(leaf), leaf.found, leaf.expected
    if not parts or found is None or expected is None or any(part.shape != found.shape for part in parts):
        return False
    if not epsilon_of(found.dtype) or np.iscomplexobj(found):
        return False
    start = np.zeros(found.shape) if leaf.start is None else leaf.start.astype(np.float64)
    table = np.stack([part.astype(np.float64) for part in parts])
    for scale in (1.0, 1.0 / len(parts)):
        right, own = (start + scale * np.tensordot(each, table, 1) for each in (np.ones(len(parts)), times))
        if np.allclose(right, expected, rtol=1e-4):
            return leaf.explained_by(own.astype(found.dtype))
    return False


def _coefficients(shards: PerShard, leaf: Leaf) -> Array | None:
    """How often each shard's result is added up, in whole numbers; ``None`` where that is not what was found."""
    parts, found, expected = shards.parts(leaf), leaf.found, leaf.expected
    if not parts or found is None or expected is None or any(part.shape != found.shape for part in parts):
        return None
    if not epsilon_of(found.dtype) or np.iscomplexobj(found) or found.size <= len(parts):
        return None
    table = np.stack([part.astype(np.float64).ravel() for part in parts], axis=1)
    start = np.zeros(found.shape) if leaf.start is None else leaf.start.astype(np.float64)
    if not np.all(np.isfinite(table)) or np.linalg.matrix_rank(table) < len(parts):
        return None
    right, own = (
        np.linalg.lstsq(table, (array.astype(np.float64) - start).ravel(), rcond=None)[0] for array in (expected, found)
    )
    if not np.all(np.abs(right) > _NEAR) or np.ptp(right) > _NEAR * np.max(np.abs(right)):
        return None
    times = np.round(own / right)
    predicted = start + (table @ (times * right)).reshape(found.shape)
    near = np.allclose(own / right, times, atol=20 * _NEAR)
    return times if near and leaf.explained_by(predicted.astype(found.dtype)) else None
