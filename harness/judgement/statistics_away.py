"""Finds statistics that all shards go on with, such as those of a batch norm, which are taken away from the shards.

All that a shard's device has made is then copied, for the few numbers that are joined.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.evidence.arithmetic import computes
from harness.evidence.op import Op
from harness.judgement.provenance import SEVERAL
from harness.judgement.shards import Shards
from harness.judgement.strays import Misplaced, cause_of
from harness.judgement.wiring import reached

#: So many times fewer numbers are left at least.
_FEWER = 4


def statistics_away(shards: Shards) -> Iterator[Misplaced]:
    """The work in no scope between what a shard's device has made, and goes on with, and a join that it waits for."""
    away = {op.name: op for op in shards.worked if _is_away(shards, op)}
    for op in away.values():
        own, part = shards.homes[shards.part(op)], shards.part(op)
        makers = [maker for maker in shards.wiring.makers(op) if shards.family.get(maker.name) == part]
        makers = [maker for maker in makers if shards.place(maker) in own and computes(maker)]
        if not any(_goes_on(shards, maker, part) for maker in makers):
            continue
        ops = list(reached([op], lambda each: [next_ for next_ in _readers(shards, each) if next_.name in away]))
        last = [each for each in ops if any(reader.name not in away for reader in _readers(shards, each))]
        ends = [reader for each in last for reader in _readers(shards, each) if reader.name not in away]
        if not ends or any(shards.family.get(end.name) != SEVERAL for end in ends):
            continue
        after = reached(ends, lambda each: _readers(shards, each))
        if not any(computes(each) and each.device in own and shards.family.get(each.name) == part for each in after):
            continue
        read = [shards.wiring.size(maker.name) or 0 for maker in makers]
        left = [shards.wiring.size(each.name) for each in last]
        if all(size is not None and size * _FEWER <= max(read) for size in left):
            yield from (Misplaced(each, min(own, key=str), cause_of(each, own)) for each in ops)


def _is_away(shards: Shards, op: Op) -> bool:
    place = shards.place(op)
    return op.requested is None and place is not None and place not in shards.homes.get(shards.part(op), {place})


def _readers(shards: Shards, op: Op) -> list[Op]:
    return [reader for reader in shards.wiring.readers(op) if reader.role == "forward"]


def _goes_on(shards: Shards, op: Op, part: int) -> bool:
    """Whether a part's device does more with what an op made."""
    own = shards.homes[part]
    return any(computes(reader) and reader.device in own for reader in _readers(shards, op))
