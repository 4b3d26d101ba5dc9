"""Finds what is out of place among the parts of a batch: work, and splits and joins (FAULTS P12).

A split or a join may stand anywhere. A join is a slip of indentation where the loop over the devices makes it again in
each scope, of the parts so far, and all but the last are thrown away.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.devices.device import Devices
from harness.devices.name import DeviceName
from harness.evidence.arithmetic import CALLS, JOINS, SPLITS, computes
from harness.evidence.op import Op
from harness.evidence.trace import Trace
from harness.judgement.accounting import Account, is_product
from harness.judgement.clients import misplaced_updates, prepares_for_a_server
from harness.judgement.companions import are_an_unscoped_model, live_with
from harness.judgement.detours import detours
from harness.judgement.phases import left_to_others
from harness.judgement.provenance import SEVERAL, Cut, Provenance
from harness.judgement.shards import Shards
from harness.judgement.statistics_away import statistics_away
from harness.judgement.strays import Misplaced
from harness.judgement.wiring import IDENTITIES, Wiring

_JOINED = (
    "results from several devices are joined inside the scope of one of them, anew for every part; join them once, "
    "after the loop over the devices"
)
#: The share of all work that other devices could take over from which on layers of all branches are a finding.
_SERIAL = 0.2
_SPLIT = "a batch for several devices is split inside the scope of one of them; split it on the host"


def judge_shards(wiring: Wiring, devices: Devices, trace: Trace) -> Iterator[Misplaced]:
    """What is out of place, each op once."""
    provenance = Provenance(wiring)
    found = [
        (shards.whole, shards)
        for shards in (Shards(cut, provenance, devices, trace) for cut in provenance.cuts())
        if shards.are_on_several or are_an_unscoped_model(shards)
    ]
    # What a device cuts its own result into is for the others, as in a ring. It is judged as work on its shard.
    judged = [
        each for whole, each in found if not any(other.made_apart(whole) for _, other in found if other is not each)
    ]
    seen: set[str] = set()
    # Arguments that are shared out each by itself, such as rows and their labels, are no parts of one batch.
    spread = {whole for whole, each in found if len(set[DeviceName]().union(*each.homes.values())) > 1}
    spread = {whole for whole in spread if whole is not None and whole.startswith("argument[")}
    judged = [each for each in judged if not spread.intersection(name for name, _ in each.parts)]
    for shards in judged:
        for other in judged:
            live_with(shards, other)
    for shards in judged:
        others = [other for other in judged if other is not shards and not _goes_with(other, shards)]
        work = (each for each in shards.misplaced() if not prepares_for_a_server(shards, each.op))
        own = (*work, *statistics_away(shards), *misplaced_updates(shards), *detours(shards))
        for misplaced in (*own, *left_to_others(shards), *_joins_in_a_tower(shards)):
            # What brings rows of the device together with a part that visits it, such as a block of keys, is at home.
            if misplaced.op.name not in seen and not any(other.is_home_of(misplaced.op) for other in others):
                seen.add(misplaced.op.name)
                yield misplaced
    yield from _splits_in_a_tower(provenance, devices)


def _goes_with(other: Shards, shards: Shards) -> bool:
    """Whether parts of ``other`` have no home: cut from one part of ``shards``, or each only used with one of these."""
    used = any(each is other for each, _ in shards.companions) and all(op.name in shards.family for op in other.worked)
    return used or other.is_within(shards)


def judge_branches(account: Account, devices: Devices) -> Iterator[Misplaced]:
    """What one of several branches does on the device of another one, where most branches do it on their own.

    Branches do the same with weights of their own: members of an ensemble, experts, parts of a table. Those that all
    work with the same weights are shards, and are judged as such.
    """
    provenance = account.provenance
    for family in account.branches:
        ops = {name: account.wiring.by_name[name] for name, part in family.items() if part != SEVERAL}
        parts: dict[tuple[str, int | None], int] = {(name, None): family[name] for name in ops}
        shards = Shards(Cut(None, parts, family, [*ops.values()]), provenance, devices, account.trace)
        shards.are_dealt = False
        if shards.are_on_several:
            odd = ops.keys() if _are_shards(account, shards) else shards.odd_ones() | _serial_ones(account, shards)
            yield from (each for each in shards.misplaced() if each.op.name in odd)
            yield from left_to_others(shards)


def _are_shards(account: Account, branches: Shards) -> bool:
    """Whether the same weights work on all branches, each step."""
    steps = [step for step in branches.steps.values() if any(map(account.has_own_weights, step.values()))]
    used = [[account.weights_of(op) for op in step.values()] for step in steps]
    return bool(used) and all(each[0] and each.count(each[0]) == len(each) > 1 for each in used)


def _serial_ones(account: Account, branches: Shards) -> set[str]:
    """Layers of all branches that one device runs, where each device runs layers of a branch of its own besides.

    As where the columns of a layer are shared out, and the rows of the next one are not.
    """
    homes = branches.homes
    layers = {op.name: op for op in branches.worked if is_product(op) and account.has_own_weights(op)}
    at_home = {branches.place(op) for op in layers.values() if branches.place(op) in homes.get(branches.part(op), ())}
    if at_home != branches.devices or len(homes) != len(branches.devices):
        return set()
    found: set[str] = set()
    for step in branches.steps.values():
        together = len({branches.place(op) for op in step.values()}) == 1 < len(step) == len(homes)
        if together and layers.keys() >= {op.name for op in step.values()}:
            found.update(op.name for part, op in step.items() if branches.place(op) not in homes[part])
    enough = sum(account.weight(layers[name]) for name in found) >= _SERIAL * sum(map(account.weight, account.work))
    return found if enough else set()


def _joins_in_a_tower(shards: Shards) -> Iterator[Misplaced]:
    """The joins of the parts of one family that are made in the scope of a device, and in those before it too.

    Where a join runs is nobody's fault. One in a loop costs a join of all results so far for every part.
    """
    whole = {shards.part(op) for op in shards.worked}
    ops = [shards.wiring.by_name[name] for name in shards.family if name in shards.wiring.by_name]
    calls = tuple(f"{op.name}/" for op in shards.wiring.ops if op.type in CALLS)
    partial = [
        op
        for op in ops
        if (op.type in JOINS or (op.type in IDENTITIES and not op.name.startswith(calls)))
        and not shards.wiring.readers(op)
        and shards.scope_of(op) is not None
        and _parts_of(shards, op) < whole
    ]
    sources = shards.provenance.sources
    for op in ops if partial and len(whole) > 1 else ():
        scope = shards.scope_of(op)
        slip = op.type in JOINS and op.role == "forward" and scope not in (None, shards.first, shards.host)
        if slip and _parts_of(shards, op) == whole:
            before = [each for each in partial if shards.scope_of(each) != scope]
            if any(set(sources[op.name]).issuperset(_parts_read(shards, each)) for each in before):
                yield Misplaced(op, shards.host, _JOINED)


def _parts_read(shards: Shards, op: Op) -> set[tuple[str, int]]:
    """The tensors of the family that an op reads."""
    return {source for source in shards.provenance.sources[op.name] if source[0] in shards.family}


def _parts_of(shards: Shards, op: Op) -> set[int]:
    """The parts that an op reads."""
    return {shards.family[name] for name, _ in shards.provenance.sources[op.name] if name in shards.family}


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
