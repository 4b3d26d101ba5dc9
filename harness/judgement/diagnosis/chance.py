"""What one number seems to show by chance: of few rows there are few shares."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.judgement.diagnosis.joins import CHANCES, Join, PerShard
from harness.judgement.diagnosis.leaves import is_real
from harness.judgement.diagnosis.question import Leaf
from harness.judgement.diagnosis.search import searched
from harness.judgement.diagnosis.siblings import unread_result


def are_counts(leaf: Leaf, rows: int) -> bool:
    """Whether a number and the reference's are counts, or shares of the rows, whose ratio says little."""
    if leaf.found is None or leaf.expected is None or leaf.found.size != 1 or leaf.expected.size != 1:
        return False
    if not (is_real(leaf.found) and is_real(leaf.expected)):
        return False
    both = np.stack([leaf.found.astype(np.float64), leaf.expected.astype(np.float64)]) * rows
    return bool(np.all(np.abs(both - np.round(both)) <= 1e-5 * np.abs(both)))


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
