"""Some parts of the batch count in the results not at all, several times, or with another weight."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.judgement.diagnosis.joins import PerShard
from harness.judgement.diagnosis.layout import partitions
from harness.judgement.diagnosis.leaves import changes_of, explained_by_change, place_of
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.rules.shares_of_rows import NEAR, odd_shares


def _claims(question: Question) -> Iterator[Cause]:
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
            yield from odd_shares(question, first, layout.shards, leaves[0].name, place)
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
    if not np.all(np.abs(right) > NEAR) or all(np.ptp(each) > NEAR * np.max(np.abs(each)) for each in known):
        return None
    sizes = np.array(shards.layout.sizes, np.float64)
    for times in (np.round(own / right), np.round(own / right * sizes) / sizes):
        near = np.allclose(own / right, times, atol=20 * NEAR)
        if near and explained_by_change(leaf, (table @ (times * right)).reshape(found.shape)):
            return np.asarray(times)
    return None


RULE = Rule("C112", "shares-of-parts", "parts of the batch left out or counted twice", _claims, by="results")
