"""Some rows of the batch, or shards, are wrong in one way, or count another number of times; the others are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from harness.judgement.diagnosis.joins import PerShard
from harness.judgement.diagnosis.layout import Layout, partitions, shards_that_differ
from harness.judgement.diagnosis.leaves import changes_of, explained_by_change, factor_of, place_of
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import factor_text, first_upper, rows_text
from harness.judgement.tolerance import epsilon_of

#: How far a share may be from a whole number of times.
_NEAR = 1e-3


def _claims(question: Question) -> Iterator[Cause]:
    # In a training, no result has the rows of the batch.
    if question.parallel is not question.reference:
        yield from _in_outputs(question)
        yield from _in_gradients(question)
    yield from _in_sums(question)


def _in_outputs(question: Question) -> Iterator[Cause]:
    """Rows of some shards that are zero, a factor of the right ones, or shifted."""
    for layout, shards, rows in shards_that_differ(question):
        what = {_of_rows(leaf, rows) for leaf in question.wrong}
        if len(what) == 1 and (text := what.pop()) is not None:
            whose, others = layout.whose(question, shards), "shards" if layout.is_of_devices(question) else "rows"
            sentence = f"{whose} {'is' if len(rows) == 1 else 'are'} {text}; the other {others} are right"
            yield Cause(first_upper(sentence), place_of(question, question.wrong[0]), rows=tuple(rows))
            return


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


def _in_gradients(question: Question) -> Iterator[Cause]:
    """Rows of the inputs' gradients that are the reference's times a factor."""
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
    yield from _odd_shares(question, first, [(row,) for row in range(len(first))], name, place)


def _shares(leaf: Leaf) -> Array | None:
    """The factor of each row's gradient; NaN where the gradient is zero."""
    if (changes := changes_of(leaf)) is None or not changes[0].ndim or len(changes[0]) < 2:
        return None
    have, want = (each.reshape(len(each), -1) for each in changes)
    squares = np.sum(want * want, axis=1)
    shares = np.where(squares > 0.0, np.sum(have * want, axis=1) / squares, np.nan)
    predicted = np.nan_to_num(shares)[:, np.newaxis] * want
    return shares if explained_by_change(leaf, predicted.reshape(changes[0].shape)) else None


def _in_sums(question: Question) -> Iterator[Cause]:
    """Parts of the batch that count in sums or means not at all, several times, or with another weight."""
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
            yield from _odd_shares(question, first, layout.shards, leaves[0].name, place)
            return


def _terms(shards: PerShard, leaf: Leaf) -> tuple[Array, Array, Array] | None:
    """The shards' results in a row, what was found, and what was expected, if their shapes agree."""
    parts, changes = shards.parts(leaf), changes_of(leaf)
    if not parts or changes is None or any(part.shape != changes[0].shape for part in parts):
        return None
    return np.stack([part.astype(np.float64) for part in parts]), *changes


def _follows(shards: PerShard, leaf: Leaf, times: Array) -> bool:
    """Whether a result, with too few elements to tell, is such a sum of the shards' results, as the reference's is."""
    if (terms := _terms(shards, leaf)) is None:
        return False
    parts, _, expected = terms
    off = 1e-8 + 1e-4 * np.abs(leaf.expected)  # type: ignore[arg-type]
    for right in _weights(shards):
        if np.all(np.abs(np.tensordot(right, parts, 1) - expected) <= off):
            return explained_by_change(leaf, np.tensordot(times * right, parts, 1))
    return False


def _weights(shards: PerShard) -> list[Array]:
    """How much each shard counts in a sum, in a mean over the shards, and in a mean over the rows."""
    sizes = np.array(shards.layout.sizes, np.float64)
    return [np.ones_like(sizes), np.ones_like(sizes) / len(sizes), sizes / np.sum(sizes)]


def _coefficients(shards: PerShard, leaf: Leaf) -> Array | None:
    """How often each shard's result is added up, in whole numbers; ``None`` where that is not what was found.

    In a mean over the rows, a shard that is weighted as if it had the rows of another one counts a fraction of times.
    """
    if (terms := _terms(shards, leaf)) is None:
        return None
    parts, found, expected = terms
    table = parts.reshape(len(parts), -1).T
    if found.size <= len(parts) or not np.all(np.isfinite(table)) or np.linalg.matrix_rank(table) < len(parts):
        return None
    right, own = (np.linalg.lstsq(table, array.ravel(), rcond=None)[0] for array in (expected, found))
    known = (right / weights for weights in _weights(shards)[1:])
    if not np.all(np.abs(right) > _NEAR) or all(np.ptp(each) > _NEAR * np.max(np.abs(each)) for each in known):
        return None
    sizes = np.array(shards.layout.sizes, np.float64)
    for times in (np.round(own / right), np.round(own / right * sizes) / sizes):
        near = np.allclose(own / right, times, atol=20 * _NEAR)
        if near and explained_by_change(leaf, (table @ (times * right)).reshape(found.shape)):
            return np.asarray(times)
    return None


def _odd_shares(
    question: Question, shares: Array, parts: Sequence[Sequence[int]], name: str, place: str | None
) -> Iterator[Cause]:
    """Say which parts count in another way than most."""
    counts = Counter(np.round(shares[np.isfinite(shares)], 3).tolist())
    # Rows with a share of 1 are right, however few they are.
    usual = max(counts, key=lambda share: (share == 1.0, abs(share) > _NEAR, counts[share]), default=0.0)
    others = [share for share in counts if abs(share - usual) > _NEAR]
    if abs(usual) <= _NEAR or len(others) != 1 or (not name and usual != 1.0):
        return
    rows = [row for share, part in zip(shares, parts, strict=True) if abs(share - others[0]) <= _NEAR for row in part]
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


RULE = Rule("C109", "odd-rows", "rows or shards that count or differ in another way", _claims, by="results")
