"""Finds what is done to the gradients of one part of a batch, such as a client's rows, on another part's device.

What leads to the update of a variable belongs to the variable. What the host makes of weights that a client has
updated itself, and keeps, is the work of a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from harness.devices.name import DeviceName
from harness.evidence.op import Op
from harness.judgement.accounting import has_weights
from harness.judgement.provenance import SEVERAL
from harness.judgement.shards import Shards
from harness.judgement.strays import Misplaced, cause_of
from harness.judgement.wiring import reached

#: How an update ends that is no op on a variable: weights, and what is added to them or taken off them.
_UPDATED = frozenset({"Add", "AddV2", "Sub"})
#: What makes a tensor of the gradient of a lookup, as joins do with it.
_DENSE = frozenset({"UnsortedSegmentSum"})


def misplaced_updates(shards: Shards) -> Iterator[Misplaced]:
    """What a scope puts on another part's device of the work on the gradients of one part."""
    homes = shards.homes
    for op in shards.optimized:
        own, place = homes.get(shards.part(op), set()), shards.place(op)
        if op.requested is None or not own or place is None or place in own or place not in shards.devices:
            continue
        others = any(place in there for part, there in homes.items() if part != shards.part(op))
        gradients = [each for each in shards.wiring.makers(op) if each.role == "gradient"]
        if not others or not all(each.device in own for each in gradients) or shards.excused(op):
            continue
        if op.type in _DENSE and all(shards.family.get(each.name) == SEVERAL for each in shards.wiring.readers(op)):
            continue  # it is how the join reads it
        if _leads_to_no_update(shards, op) and not _is_of_a_server(shards, op, own):
            yield Misplaced(op, min(own, key=str), cause_of(op, own))


def prepares_for_a_server(shards: Shards, op: Op) -> bool:
    """Whether only the work of a server reads what an op on the host makes."""
    own = shards.homes.get(shards.part(op), set())
    optimized = {each.name for each in shards.optimized}
    readers = [each for each in shards.wiring.followers(op) if each.role == "forward"]
    known = all(each.name in optimized and shards.place(each) == shards.place(op) for each in readers)
    return bool(readers) and known and all(_is_of_a_server(shards, each, own) for each in readers)


def _leads_to_no_update(shards: Shards, op: Op) -> bool:
    return all(end.role != "update" for end in shards.ends(op, lambda reader: reader.role != "update"))


def _is_of_a_server(shards: Shards, op: Op, own: Set[DeviceName]) -> bool:
    """Whether the host goes on with what a part's device has updated itself, and keeps it."""
    part, place, family = shards.part(op), shards.place(op), shards.family
    here = {each.name: each for each in shards.optimized if (shards.part(each), shards.place(each)) == (part, place)}
    makers, followers = shards.wiring.makers, shards.wiring.followers
    before = [*reached([op], lambda each: [maker for maker in makers(each) if maker.name in here])]
    given = [maker for each in before for maker in makers(each) if family.get(maker.name) == part]
    given = [maker for maker in given if maker.name not in here and shards.place(maker) in own]
    after = [*reached([op], lambda each: [reader for reader in followers(each) if reader.name in here])]
    readers = [reader for each in after for reader in followers(each) if family.get(reader.name) == part]
    kept = not any(shards.place(reader) in own for reader in readers) and not any(map(has_weights, here.values()))
    beside = reached(before + after, lambda each: [maker for maker in makers(each) if maker.name not in family])
    lent = any(each.role == "variable" and each.device in own for each in beside)  # what the part's device keeps itself
    return place == shards.host and kept and not lent and bool(given) and all(each.type in _UPDATED for each in given)
