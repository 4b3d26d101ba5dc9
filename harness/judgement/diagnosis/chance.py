"""What one number seems to show by chance: of few rows there are few shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.judgement.diagnosis.joins import CHANCES, Join, PerShard
from harness.judgement.diagnosis.leaves import is_real
from harness.judgement.diagnosis.question import Leaf
from harness.judgement.diagnosis.search import searched
from harness.judgement.diagnosis.siblings import unread_result
from harness.judgement.tolerance import epsilon_of

#: So many bits a floating number tells, and so many are asked for beyond those of the number of tries.
_BITS, _MARGIN = 12.0, 4.0


def are_counts(leaf: Leaf, rows: int) -> bool:
    """Whether a number and the reference's are counts, or shares of the rows, whose ratio says little."""
    if leaf.found is None or leaf.expected is None or leaf.found.size != 1 or leaf.expected.size != 1:
        return False
    if not (is_real(leaf.found) and is_real(leaf.expected)):
        return False
    both = np.stack([leaf.found.astype(np.float64), leaf.expected.astype(np.float64)]) * rows
    return bool(np.all(np.abs(both - np.round(both)) <= 1e-5 * np.abs(both)))


def is_by_chance(leaves: Sequence[Leaf], tried: int) -> bool:
    """Whether one of so many tries may have given what these results are, though it is not the cause.

    A floating number that is equal but for rounding tells ``_BITS`` bits, a whole one as many as it has digits.
    """
    bits = 0.0
    for leaf in leaves:
        expected, found = leaf.expected, leaf.found
        if expected is None or found is None or expected.dtype.kind in "OSU":
            continue
        other = expected != found if expected.shape == found.shape else np.ones(expected.shape, bool)
        number = int(np.count_nonzero(other))
        if epsilon_of(expected.dtype):
            bits += _BITS * number
        else:
            spread = len(np.unique(expected))
            bits += number * float(np.log2(max(spread, 2)))
    return bits <= float(np.log2(1 + tried)) + _MARGIN


def by_chance(shards: PerShard, leaf: Leaf, chosen: Mapping[int, Join]) -> bool:
    """Whether nothing but one share of the rows, of which there are few, says that a shard is left out, say.

    A result of a shard that no op reads says so too.
    """
    join = chosen.get(id(leaf))
    if join is None or join.name not in CHANCES or leaf.part == "state" or not are_counts(leaf, shards.layout.rows):
        return False
    others = [each for each in shards.question.wrong if each is not leaf and chosen.get(id(each)) == join]
    alone = all(are_counts(each, shards.layout.rows) for each in others)
    return alone and not unread_result(searched(shards.question))
