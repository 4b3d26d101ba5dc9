"""Finds a split or a join that stands in the scope of one shard by a slip of indentation (FAULTS P12).

Both may stand anywhere. A join looks like a slip where no scope puts another one elsewhere, it is on another device
than the first, what it joins comes from several devices, and nothing on the devices goes on with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.devices.device import Devices
from harness.devices.name import DeviceName
from harness.evidence.op import Op
from harness.judgement.arithmetic import JOINS, SPLITS, computes
from harness.judgement.provenance import Provenance
from harness.judgement.strays import Misplaced

if TYPE_CHECKING:
    from harness.judgement.shards import Shards

_JOINED = "results from several devices are joined inside the scope of one of them; join them on the host"
_SPLIT = "a batch for several devices is split inside the scope of one of them; split it on the host"


def joins_in_a_tower(shards: Shards) -> Iterator[Misplaced]:
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
        if alone and op.device in towers and op.requested is not None and not _goes_on(shards, op):
            yield Misplaced(op, shards.host, _JOINED)


def _is_join(shards: Shards, op: Op, whole: set[int]) -> bool:
    if op.type not in JOINS or op.role != "forward":
        return False
    sources = [source for source in shards.provenance.sources[op.name] if source[0] in shards.family]
    if {shards.family[name] for name, _ in sources} != whole or len(whole) < 2:
        return False
    makers = [shards.wiring.by_name.get(shards.provenance.base(*source)[0]) for source in sources]
    return len({shards.place(maker) for maker in makers if maker is not None}) > 1


def _goes_on(shards: Shards, op: Op) -> bool:
    frontier, seen = [op], {op.name}
    while frontier:
        for reader in shards.wiring.readers(frontier.pop()):
            if reader.device in shards.devices - {shards.host} and (computes(reader) or reader.role == "update"):
                return True
            if not computes(reader) and reader.name not in seen:
                seen.add(reader.name)
                frontier.append(reader)
    return False


def splits_in_a_tower(provenance: Provenance, devices: Devices) -> Iterator[Misplaced]:
    """An argument of the program that is split in the scope of one shard for all of them."""
    host = DeviceName.parse(devices.host)
    towers = {device.parsed for device in devices} - {host, devices[0].parsed}
    found = []
    for op in provenance.wiring.ops:
        if op.type not in SPLITS or op.device not in towers or op.requested is None:
            continue
        sources = provenance.sources[op.name]
        readers = {reader.device for reader in provenance.wiring.readers(op) if computes(reader)} - {None}
        given = any(provenance.base(*source)[0].startswith("argument[") for source in sources)
        if given and op.device in readers and len(readers) > 1:
            found.append(op)
    # Where each device splits what it was given, they exchange parts.
    if len({op.device for op in found}) == 1:
        yield from (Misplaced(op, host, _SPLIT) for op in found)
