"""Finds a step of the work on each shard that runs on the device of another shard, and has no reason to.

If all that is left to do moves to the next device, that is a second phase, and right. But here the results come back,
or other work on the shard stays. And the step reads only its shard, and what is the same for all shards. On the shard's
own device it would take as long, and nothing would be copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.devices.name import DeviceName
from harness.evidence.op import Op
from harness.judgement.accounting import has_weights
from harness.judgement.provenance import SLICES
from harness.judgement.shards import SHARE, Shards
from harness.judgement.strays import Misplaced
from harness.judgement.wiring import reached

_LEFT_TO_ANOTHER = (
    "a step on each shard ran on the device of another shard, which has nothing that it needs, while other work on the "
    "shard stayed or came back; run it in the scope of the shard's own device"
)
#: The share of the work on the parts from which on a layer with weights is a finding.
_LAYER = 0.02
#: Parts that differ by more than this factor may be sent away to even out the work.
_ALIKE = 2.0
#: The device of each part.
_Deal = tuple[tuple[int, DeviceName], ...]


def left_to_others(shards: Shards) -> Iterator[Misplaced]:
    """The work of such steps."""
    deals: dict[_Deal, list[Mapping[int, Op]]] = {}
    number = len({shards.part(op) for op in shards.worked})
    for step in shards.steps.values():
        deal = tuple((part, place) for part, op in sorted(step.items()) if (place := shards.place(op)) is not None)
        if len(deal) == number == len({place for _, place in deal} & shards.devices):
            deals.setdefault(deal, []).append(step)
    if len(deals) < 2:
        return
    home = _home(shards, deals)
    places, made = dict(home), _made(shards)
    total = sum(map(shards.weight, shards.worked))
    for deal, steps in deals.items():
        ops = [op for step in steps for op in step.values()]
        least = (_LAYER if any(map(has_weights, ops)) else SHARE) * total
        if deal == home or {*dict(deal).values()} != {*places.values()} or sum(map(shards.weight, ops)) < least:
            continue
        alike = all(_needs_nothing(shards, step, made) for step in steps)
        if alike and _is_no_phase(shards, ops, places, least, made):
            yield from (Misplaced(op, places[shards.part(op)], _LEFT_TO_ANOTHER) for op in ops)


def _home(shards: Shards, deals: Mapping[_Deal, Sequence[Mapping[int, Op]]]) -> _Deal:
    """Where parts are at home: where most of their work is or, if it begins there or is nearly as much, in order."""
    works = {deal: sum(shards.weight(op) for step in steps for op in step.values()) for deal, steps in deals.items()}
    most, first = max(works.values()), next(iter(deals))

    def rank(deal: _Deal) -> tuple[bool, float]:
        ordered = [place for _, place in deal] == shards.order[: len(deal)]
        return ordered and (deal == first or works[deal] * _ALIKE >= most), works[deal]

    return max(works, key=rank)


def _needs_nothing(shards: Shards, step: Mapping[int, Op], made: Mapping[str, object]) -> bool:
    """Whether a step does the same to each part, with nothing that is at home where it ran."""
    ops = list(step.values())
    if any(shards.handed_on(op) or shards.updates(op) for op in ops):
        return False
    weights = [shards.weight(op) for op in ops]
    return max(weights) <= _ALIKE * min(weights) and len({_beside_the_part(shards, op, made) for op in ops}) == 1


def _made(shards: Shards) -> dict[str, object]:
    """What each op makes: alike where two ops do the same to the same. Of slices, each is another one."""
    made: dict[str, object] = {}
    for op in shards.wiring.ops:
        behind = tuple((made.get(name, name), port) for name, port in shards.provenance.sources[op.name])
        known = hash((op.type, shards.trace.variables.get(op.name, ()), behind))
        made[op.name] = op.name if op.type in SLICES else known
    return made


def _beside_the_part(shards: Shards, op: Op, made: Mapping[str, object]) -> tuple[object, ...]:
    """What an op reads beside its part."""
    sources = shards.provenance.sources[op.name]
    return tuple((made.get(name, name), port) for name, port in sources if not _is_of_part(shards, (name, port)))


def _is_of_part(shards: Shards, source: tuple[str, int]) -> bool:
    """Whether a tensor is a part, or was made of one."""
    return source[0] in shards.family or not shards.parts.keys().isdisjoint({source, (source[0], None)})


def _is_no_phase(
    shards: Shards, ops: Sequence[Op], home: Mapping[int, DeviceName], least: float, made: Mapping[str, object]
) -> bool:
    """Whether work comes back from these ops to where its part is at home, or much stays there and is no copy of it."""
    by_name = shards.wiring.by_name
    behind = {op.name for op in reached(ops, lambda op: [by_name[name] for name in shards.sources(op.name)])}
    after = {op.name for op in ops}
    for op in shards.ops:
        if not after.isdisjoint(shards.sources(op.name)):
            after.add(op.name)
    own = [op for op in shards.worked if shards.place(op) == home[shards.part(op)] and op.requested is not None]
    left = any(op.name in behind for op in own)
    back = left and any(op.name in after for op in own)
    stays = [op for op in own if op.name not in behind | after]
    copies = {_reads(shards, op, made) for op in ops}.intersection(_reads(shards, op, made) for op in stays)
    return not copies and (back or sum(map(shards.weight, stays)) >= least)


def _reads(shards: Shards, op: Op, made: Mapping[str, object]) -> tuple[object, ...]:
    """The type of an op, and what it reads."""
    sources = (each for each in shards.provenance.sources[op.name] if _is_of_part(shards, each))
    return op.type, _beside_the_part(shards, op, made), *(shards.provenance.base(*each) for each in sources)
