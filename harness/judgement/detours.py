"""Finds what is put together of one part's tensors in another part's scope, for work on the part's own device.

As a cache and what is new. It computes nothing, so nobody weighs it, but the whole of it is copied there and back.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from harness.evidence.arithmetic import JOINS, computes
from harness.evidence.op import Op
from harness.judgement.shards import Shards
from harness.judgement.strays import Misplaced

_DETOUR = (
    "what belongs to a shard is joined in the scope of another shard, and copied there and back; join it in the scope "
    "of the shard that works with it"
)
_PUT_TOGETHER = JOINS | {"TensorScatterUpdate"}
#: The size, as a share of the largest tensor on the shards, from which on it is a finding.
_LARGE = 0.05


def detours(shards: Shards) -> Iterator[Misplaced]:
    """The joins in the scope of another shard's device; the host may keep what belongs to a shard."""
    homes = shards.homes
    largest = max((_size(shards, op) for op in shards.worked), default=0.0)
    for op in shards.ops:
        own, scope = homes.get(shards.part(op), set()), shards.scope_of(op)
        if op.type not in _PUT_TOGETHER or op.role != "forward" or not own or scope in own | {None, shards.host}:
            continue
        others = any(scope in there for part, there in homes.items() if part != shards.part(op))
        readers = [each for each in shards.wiring.followers(op) if shards.family.get(each.name) == shards.part(op)]
        at_home = any(computes(each) and shards.place(each) in own for each in readers)
        if others and at_home and _size(shards, op) >= _LARGE * largest:
            yield Misplaced(op, min(own, key=str), _DETOUR)


def _size(shards: Shards, op: Op) -> float:
    """The number of elements of an op's first result, as far as it is known."""
    shape = next(iter(shards.trace.shapes.get(op.name) or ()), None)
    return float(prod(size or 1 for size in shape)) if shape is not None else 0.0
