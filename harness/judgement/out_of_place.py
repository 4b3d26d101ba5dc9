"""Finds what is out of place among the parts of a batch: work, and splits and joins (FAULTS P12).

A split or a join may stand anywhere. A join looks like a slip of indentation where no scope puts another one elsewhere,
it is on another device than the first, what it joins comes from several devices, and nothing on the devices goes on
with it. What joins columns of unequal width, as of a layer on two devices, is part of the model.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.devices.device import Devices
from harness.devices.name import DeviceName
from harness.evidence.op import Op
from harness.evidence.trace import Trace
from harness.judgement.arithmetic import JOINS, SPLITS, computes, on_device
from harness.judgement.provenance import Provenance
from harness.judgement.shards import Shards
from harness.judgement.strays import Misplaced
from harness.judgement.wiring import Wiring, reached

_JOINED = "results from several devices are joined inside the scope of one of them; join them on the host"
_SPLIT = "a batch for several devices is split inside the scope of one of them; split it on the host"


def judge_shards(wiring: Wiring, devices: Devices, trace: Trace) -> Iterator[Misplaced]:
    """What is out of place, each op once."""
    provenance = Provenance(wiring)
    found = [
        (cut.whole, Shards(cut, provenance, devices, trace))
        for cut in provenance.cuts()
        if len({(op.device if on_device(op) else op.requested) or op.requested for op in cut.ops} - {None}) > 1
    ]
    # What a device cuts its own result into is for the others, as in a ring. It is judged as work on its shard.
    judged = [
        each for whole, each in found if not any(other.made_apart(whole) for _, other in found if other is not each)
    ]
    seen: set[str] = set()
    for shards in judged:
        others = [other for other in judged if other is not shards and not other.is_within(shards)]
        for misplaced in (*shards.misplaced(), *_joins_in_a_tower(shards)):
            # What brings rows of the device together with a part that visits it, such as a block of keys, is at home.
            if misplaced.op.name not in seen and not any(other.is_home_of(misplaced.op) for other in others):
                seen.add(misplaced.op.name)
                yield misplaced
    yield from _splits_in_a_tower(provenance, devices)


def _joins_in_a_tower(shards: Shards) -> Iterator[Misplaced]:
    """The joins of the parts of one family that look like slips."""
    places = {op.device for op in shards.worked} & shards.devices
    towers = places - {shards.host, shards.first}
    if len(places) < 2:
        return
    whole = {shards.part(op) for op in shards.worked}
    joins = [
        op for op in map(shards.wiring.by_name.get, shards.family) if op is not None and _is_join(shards, op, whole)
    ]
    for op in joins:
        # A join outside of all scopes is on the first GPU, where there is one.
        alone = all(other.requested is None or other.device in (op.device, shards.host) for other in joins)
        slips = alone and op.device in towers and op.requested is not None and not _goes_on(shards, op)
        if slips and not shards.differ_in_width:
            yield Misplaced(op, shards.host, _JOINED)


def _is_join(shards: Shards, op: Op, whole: set[int]) -> bool:
    if op.type not in JOINS or op.role != "forward":
        return False
    sources = [source for source in shards.provenance.sources[op.name] if source[0] in shards.family]
    if {shards.family[name] for name, _ in sources} != whole or len(whole) < 2:
        return False
    makers = [shards.wiring.by_name.get(shards.provenance.base(*source)[0]) for source in sources]
    return len({_made_on(shards, maker) for maker in makers if maker is not None} - {None}) > 1


def _made_on(shards: Shards, op: Op) -> DeviceName | None:
    """Where the result of an op is; TensorFlow does not tell where it ran a condition or a loop: in its scope."""
    return shards.place(op) or shards.scope_of(op)


def _goes_on(shards: Shards, op: Op) -> bool:
    places = shards.devices - {shards.host}
    after = reached([op], lambda each: () if computes(each) else shards.wiring.followers(each))
    return any(each.device in places and (computes(each) or each.role == "update") for each in after)


def _splits_in_a_tower(provenance: Provenance, devices: Devices) -> Iterator[Misplaced]:
    """An argument of the program that is split in the scope of one shard for all of them."""
    host = DeviceName.parse(devices.host)
    towers = {device.parsed for device in devices} - {host, devices[0].parsed}
    found = []
    for op in provenance.wiring.ops:
        if op.type not in SPLITS or op.device not in towers or op.requested is None:
            continue
        sources = provenance.sources[op.name]
        readers = {reader.device for reader in provenance.wiring.followers(op) if computes(reader)} - {None}
        given = any(provenance.base(*source)[0].startswith("argument[") for source in sources)
        if given and op.device in readers and len(readers) > 1:
            found.append(op)
    # Where each device splits what it was given, they exchange parts.
    if len({op.device for op in found}) == 1:
        yield from (Misplaced(op, host, _SPLIT) for op in found)
