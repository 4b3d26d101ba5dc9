"""Finds products that several devices compute, though the program needs them once.

The algebra of proofs says which operations compute the same numbers. Members of an ensemble differ in their weights,
shards in their rows. Where devices compute the same, either each of them keeps another part of it, as where the batch
is cut behind the layers, or what they made is added up, as where no batch was cut. What is compared with what another
device made of the same is computed again to be checked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from harness.devices.device import Devices
from harness.devices.name import DeviceName
from harness.evidence.arithmetic import SPLITS, computes
from harness.evidence.op import Op
from harness.evidence.trace import Trace
from harness.judgement.accounting import is_product
from harness.judgement.diagnosis.wording import listed
from harness.judgement.provenance import ROW_OPERANDS, VIEWS
from harness.judgement.strays import first_of, lines, stray
from harness.judgement.wiring import Wiring, reached, sources_of
from harness.proof.computed import Computed
from harness.proof.rules.table import FAMILIES
from harness.records import Finding

#: The share of the forward products that are computed again on another device, from which on it is a finding.
_MUCH = 1 / 3
_CUTS = SPLITS | {"Slice", "StridedSlice"}
#: Ops that keep rows apart.
_BY_ROWS = (VIEWS - {"Transpose"}).union(
    FAMILIES["elementwise"], ("AvgPool", "BiasAdd", "Conv2D", "LogSoftmax", "MaxPool", "Softmax")
)
_SUMS = ("Add", "AddN", "AddV2")
_COMPARISONS = frozenset(
    {
        *("ApproximateEqual", "Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual"),
        *("Maximum", "Minimum", "SquaredDifference", "Sub"),
    }
)
_KEPT = "each device computes layers for all rows and keeps a part of them; cut the batch before the layers"
_ALL = "devices compute the same numbers for the same rows; give each device its own part of the batch"

#: The ops that compute one value, by their devices.
Copies = Mapping[DeviceName, Sequence[Op]]


def judge_repeated(trace: Trace, devices: Devices, computed: Computed, mode: str) -> Iterator[Finding]:
    """A finding of the kind ``repeated-work`` for forward products that more than one of the devices computes."""
    own = {device.parsed for device in devices}
    products = [op for op in trace.ops if op.role == "forward" and op.device in own and is_product(op)]
    done: dict[int, dict[DeviceName, list[Op]]] = defaultdict(lambda: defaultdict(list))
    for op in products:
        value = computed.value(op.name)
        if value is not None and op.device is not None:
            done[value][op.device].append(op)
    again = [copies for copies in done.values() if len(copies) > 1]
    least = _MUCH * sum(_weight(trace, op) for op in products)
    if not again or _repeated(trace, again) < least:
        return
    wiring = Wiring(trace)
    kept = [copies for copies in again if _keep_parts(copies, wiring, computed)]
    if _repeated(trace, kept) >= least:
        yield _finding(_KEPT, kept, products, trace, mode)
        return
    # What the reference computes as often, or what is returned as often, is wanted so.
    for_once = {value: copies for value, copies in done.items() if computed.reference.get(value, 0) < len(copies) > 1}
    repeated = {op.name for copies in for_once.values() for op in _all(copies)}
    idle = own - {op.device for op in products if op.name not in repeated}
    added = [copies for copies in for_once.values() if len(idle & copies.keys()) > 1]
    checked = _checked(wiring, computed) if added else set()
    added = [copies for copies in added if sum(any(op.name in checked for op in ops) for ops in copies.values()) < 2]
    wanted = any(count > 1 for count in computed.results.values())
    if not wanted and _repeated(trace, added) >= least and _are_added_up(wiring, added):
        yield _finding(_ALL, added, products, trace, mode)


def _weight(trace: Trace, op: Op) -> float:
    return trace.work.get(op.name) or 1.0


def _all(copies: Copies) -> Iterator[Op]:
    return (op for ops in copies.values() for op in ops)


def _repeated(trace: Trace, found: Iterable[Copies]) -> float:
    """The work on these values of all devices but one."""
    each = [[sum(_weight(trace, op) for op in ops) for ops in copies.values()] for copies in found]
    return sum(sum(weights) - max(weights) for weights in each)


def _keep_parts(copies: Copies, wiring: Wiring, computed: Computed) -> bool:
    """Whether each device uses rows of its own of a value, and no others."""
    parts: list[int] = []
    for ops in copies.values():
        own = [_parts(op, wiring, computed) for op in ops]
        if not all(own):
            return False
        parts += set[int]().union(*own)
    return len(parts) == len(set(parts))


def _parts(op: Op, wiring: Wiring, computed: Computed) -> set[int]:
    """The rows of a value that are cut out of it, or of what is made of it row by row; none if all are used."""
    rows = computed.rows(op.name)
    parts: set[int] = set()
    waiting, seen = [op], {op.name}
    while waiting:
        readers = [reader for reader in wiring.readers(waiting.pop()) if reader.role == "forward"]
        if not readers or rows is None:
            return set()
        for reader in readers:
            if reader.name in seen:
                continue
            seen.add(reader.name)
            left = computed.rows(reader.name)
            if left == rows and _keeps_rows(reader, seen):
                waiting.append(reader)
            elif reader.type in _CUTS and left is not None and left < rows:
                read = {
                    port for each in wiring.readers(reader) for name, port in sources_of(each) if name == reader.name
                }
                found = {computed.value(reader.name, port) for port in read}
                parts |= {part for part in found if part is not None}
            else:
                return set()
    return parts


def _keeps_rows(reader: Op, of: Set[str]) -> bool:
    """Whether each row of an op's result is made of that row alone of what it reads of these ops."""
    if reader.type in ROW_OPERANDS:
        return all(at == ROW_OPERANDS[reader.type] for at, (name, _) in enumerate(sources_of(reader)) if name in of)
    return reader.type in _BY_ROWS


def _checked(wiring: Wiring, computed: Computed) -> set[str]:
    """What leads to two equal values that are compared with each other, though other ops made them."""
    made: list[Op] = []
    for op in wiring.ops:
        sources = sources_of(op) if op.type in _COMPARISONS else []
        if len(sources) == len(set(sources)) == 2:
            one, other = (computed.value(name, port) for name, port in sources)
            made += wiring.before(op) if one is not None and one == other else ()
    return {op.name for op in reached(made, wiring.before)}


def _are_added_up(wiring: Wiring, found: Sequence[Copies]) -> bool:
    """Whether what the devices made meets in an op that computes, and is not only returned side by side."""
    behind = []
    for device in found[0]:
        ops = [op for copies in found for op in copies.get(device, ())]
        behind.append({op.name: op for op in reached(ops, wiring.readers) if op.role in ("forward", "update")})
    common = [behind[0][name] for name in set(behind[0]).intersection(*behind[1:])]
    return any(computes(op) or op.type in _SUMS for op in common)


def _finding(cause: str, found: Sequence[Copies], products: Sequence[Op], trace: Trace, mode: str) -> Finding:
    ops = [op for copies in found for op in _all(copies)]
    places = sorted({op.device for op in ops if op.device is not None})
    share = _repeated(trace, found) / sum(_weight(trace, op) for op in products)
    names = listed([place.short for place in places])
    return stray(
        "repeated-work",
        cause,
        first_of(ops),
        mode,
        devices=places,
        expected="each product on one device",
        found=f"{share:.0%} of the forward products are computed again on another device, of {names}",
        place=lines(trace, ops),
    )
