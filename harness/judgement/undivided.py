"""Finds layers that one device runs on all rows of a batch, where the program shares out such rows over its devices.

What a device does alone on its own part is its share. What it does on all rows beside that, the others wait for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from itertools import chain

from harness.devices.device import Devices
from harness.devices.name import DeviceName
from harness.evidence.op import Op
from harness.evidence.roles import LOOKUPS
from harness.judgement.accounting import Account
from harness.judgement.provenance import SEVERAL, SLICES, Cut
from harness.judgement.shards import SHARE
from harness.judgement.strays import Misplaced

_WHOLE = (
    "most of the work is layers that ran on the whole batch outside of the device scopes, though each shard reads what "
    "they make; run them on each shard in its scope"
)
_IN_ONE_SCOPE = (
    "layers ran on the whole batch in the scope of one device, though each shard reads what they make; run them on "
    "each shard in its scope"
)
_AGAIN = (
    "layers that each device runs on its own shard ran on all other rows on one device alone; share these rows out too"
)
_ALL_PARTS = (
    "most of the work is layers that ran on all parts of a batch on one device; run each part in the scope of a device "
    "of its own"
)
_OF_ONE_INPUT = (
    "the work on all parts of one input ran on one device, where the parts of another one are shared out; run each "
    "part in the scope of a device of its own"
)
_AFTER = (
    "most of the work is layers that ran on the joined results of all shards, on one device and outside of the device "
    "scopes; run them on each shard in its scope"
)
#: The share of a program's work from which on layers outside of the scopes are a finding, as are those on all parts.
_MOST = 0.5
#: The share from which on layers in the scope of one device are a finding, which cannot be meant to prepare the rows.
_MUCH = 1 / 3
#: The share of the work that other devices could take over from which on layers on all parts of an input are a finding.
_SENT = 0.1
#: The work on other rows, as a share of the work of the same layers on all shards, from which on it is a finding.
#: A check on a few rows may run anywhere.
_AS_MUCH = 0.75


def judge_undivided(account: Account, devices: Devices) -> Iterator[Misplaced]:
    """The work with weights on rows that are not shared out, on a device that has a shard of its own."""
    own = {device.parsed for device in devices}
    if len(own) < 2:
        return
    shared = [cut for cut in account.cuts if _is_shared_out(cut, account, own)]
    families = {name: part for cut in shared for name, part in cut.family.items()}
    given = {name: part for cut in shared if _is_given(cut) for name, part in cut.family.items()}
    rest = [op for op in account.work if op.name not in families and op.type not in SLICES and account.depends(op)]
    total = sum(map(account.weight, account.work))
    for cause, ops in (
        (_WHOLE, _read_by_shards(account, rest, given, None, _MOST * total)),
        (_IN_ONE_SCOPE, _read_by_shards(account, rest, families, _rows_of(account, shared), _MUCH * total)),
        (_AGAIN, _done_again(account, rest, families)),
        (_ALL_PARTS, _on_all_parts(account, len(own), _MOST * total)),
        (_OF_ONE_INPUT, _on_all_of_one_input(account, len(own), shared, total)),
        (_AFTER, _after_the_join(account, shared, _MOST * total)),
    ):
        ran = {account.places[op.name] for op in ops}
        if ran and ran < own:
            yield from (Misplaced(op, other, cause, None) for op in ops for other in sorted(own - ran)[:1])
            return


def _read_by_shards(
    account: Account, rest: Sequence[Op], families: dict[str, int], rows: int | None, least: float
) -> list[Op]:
    """The work on a whole batch that leads to shards: in no scope or, on so many rows, in the scope of one device."""
    found = [op for op in rest if (op.requested is None) == (rows is None)]
    found = [op for op in found if any(name in families for name in account.leads_to(op))]
    layers = [op for op in found if account.has_own_weights(op)]
    if rows is not None:
        layers = [op for op in layers if _rows(account, op) == rows]
        found = found if len({account.places[op.name] for op in found}) == 1 else []
    enough = sum(map(account.weight, found)) >= least
    return found if layers and enough and families else []


def _done_again(account: Account, rest: Sequence[Op], families: dict[str, int]) -> list[Op]:
    """The work on other rows of the layers that the shards run, if there is nearly as much of it, on one device.

    In chunks and in no scope it may be a program of its own, unless its results meet those of the shards.
    """
    of_shards: dict[int, float] = defaultdict(float)
    for op in account.work:
        if families.get(op.name, SEVERAL) != SEVERAL and account.has_own_weights(op):
            for variable in account.weights_of(op):
                of_shards[variable] += account.weight(op)
    again = [op for op in rest if account.has_own_weights(op) and of_shards.keys() & account.weights_of(op)]
    cuts = [cut for cut in account.cuts if not any(name.startswith("argument[") for name, _ in cut.parts)]
    chunks = {name for cut in cuts for name, part in cut.family.items() if part != SEVERAL}
    if all(op.requested is None and op.name in chunks for op in again):
        again = [op for op in again if not families.keys().isdisjoint(account.leads_to(op))]
    used = set(chain.from_iterable(map(account.weights_of, again)))
    enough = sum(map(account.weight, again)) >= _AS_MUCH * sum(of_shards[variable] for variable in used)
    return again if enough and len({account.places[op.name] for op in again}) == 1 else []


def _after_the_join(account: Account, shared: Sequence[Cut], least: float) -> list[Op]:
    """The layers in no scope on the joined results of all shards of an argument's rows, if they are most of the work.

    In the scope of a device they may be a stage.
    """
    for cut in (cut for cut in shared if _is_given(cut) and _are_rows(account, cut)):
        ops = [op for op in account.work if cut.family.get(op.name) == SEVERAL and op.requested is None]
        layers = [op for op in ops if account.has_own_weights(op)]
        made = {_shape(account, op) for op in layers}
        ops = [op for op in ops if op in layers or _shape(account, op) in made]  # their activations
        one = len({account.places[op.name] for op in ops}) == 1
        if one and sum(map(account.weight, ops)) > least and account.places[ops[0].name] in account.devices:
            return ops
    return []


def _on_all_parts(account: Account, number: int, least: float) -> list[Op]:
    """The work on each of as many parts of rows as there are devices, if it is most of it and on one device.

    The parts are those into which several devices have cut what they made. One that cuts rows itself, and works on them
    chunk by chunk, is a stage.
    """
    for cut, ops in _on_one_device(account, number, least):
        if _are_rows(account, cut) and len(_makers(account, cut, ops)) > 1:
            return ops
    return []


def _on_all_of_one_input(account: Account, number: int, shared: Sequence[Cut], total: float) -> list[Op]:
    """The work on all parts of an argument on one device, where the layers of another argument are shared out.

    In no scope it may prepare the parts, or be a metric, unless it is most of all work; with layers, it may be another
    batch in chunks.
    """
    layers = {op.name for op in account.work if account.has_own_weights(op)}
    if not any(not layers.isdisjoint(name for name, part in cut.family.items() if part != SEVERAL) for cut in shared):
        return []
    for cut, ops in _on_one_device(account, number, _SENT * total * number / (number - 1)):
        if _is_given(cut) and all(op.requested is not None for op in ops):
            return ops
    for cut, ops in _on_one_device(account, number, _MOST * total, layers=False):
        if _is_given(cut) and all(op.requested is None and op.name not in layers for op in ops):
            return ops
    return []


def _on_one_device(
    account: Account, number: int, least: float, *, layers: bool = True
) -> Iterator[tuple[Cut, list[Op]]]:
    """Cuts into ``number`` parts, and the work on these: more than ``least``, on one device, and with ``layers``."""
    for cut in account.cuts:
        ops = [op for op in account.work if cut.family.get(op.name, SEVERAL) != SEVERAL]
        parts = {cut.family[op.name] for op in ops if not layers or account.has_own_weights(op)}
        one = len({account.places[op.name] for op in ops}) == 1
        if len(parts) == number and one and sum(map(account.weight, ops)) > least:
            yield cut, ops


def _makers(account: Account, cut: Cut, ops: Sequence[Op]) -> set[DeviceName]:
    """The devices that made what was cut into the parts that these ops work on."""
    cuts = [each for each in account.cuts if all(each.family.get(op.name) == cut.family[op.name] for op in ops[-1:])]
    return {account.places[each.whole] for each in cuts if each.whole is not None and each.whole in account.places}


def _is_shared_out(cut: Cut, account: Account, devices: Set[DeviceName]) -> bool:
    """Whether nearly all work on each part of a batch is on one device, lookups aside, and each device has a part."""
    places: dict[int, dict[DeviceName, float]] = defaultdict(lambda: defaultdict(float))
    for op in account.work:
        if cut.family.get(op.name, SEVERAL) != SEVERAL and op.type not in LOOKUPS:
            places[cut.family[op.name]][account.places[op.name]] += account.weight(op)
    apart = all(max(each.values()) >= (1 - SHARE) * sum(each.values()) for each in places.values())
    if not apart or {max(each, key=lambda device: each[device]) for each in places.values()} != devices:
        return False
    return _is_given(cut) or _are_rows(account, cut)


def _is_given(cut: Cut) -> bool:
    """Whether an argument was shared out, and not what the program made."""
    return any(name is not None and name.startswith("argument[") for name in (cut.whole, next(iter(cut.parts))[0]))


def _are_rows(account: Account, cut: Cut) -> bool:
    """Whether parts are rows of what they were cut from: they have all that the whole has along the other axes."""
    shapes = account.trace.shapes
    known = [(tuple(shapes.get(name) or ()), port or 0) for name, port in cut.parts]
    parts = [tuple(each[port] or ()) if port < len(each) else () for each, port in known]
    if (kind := account.trace.arguments.get(cut.whole or "")) is not None:  # its type, rank, and sizes but of its rows
        return all((len(part), *part[1:]) == kind[1 : 1 + len(part)] for part in parts)
    whole = next(iter(shapes.get(cut.whole or "") or ()), None)
    return whole is not None and all(part and part[1:] == tuple(whole)[1:] and part[0] != whole[0] for part in parts)


def _rows_of(account: Account, shared: Sequence[Cut]) -> int:
    """The number of rows of the batch that is shared out, where it is known; 0 where it is not."""
    for cut in shared:
        first: dict[int, int] = {}
        for op in account.work:
            part = cut.family.get(op.name, SEVERAL)
            if part != SEVERAL and account.has_own_weights(op):
                first.setdefault(part, _rows(account, op))
        if first:
            return sum(first.values())
    return 0


def _rows(account: Account, op: Op) -> int:
    shape = _shape(account, op)
    return (shape[0] or 0) if shape else 0


def _shape(account: Account, op: Op) -> tuple[int | None, ...] | None:
    """The shape of what an op makes, if it is known."""
    shape = next(iter(account.trace.shapes.get(op.name) or ()), None)
    return None if shape is None else tuple(shape)
