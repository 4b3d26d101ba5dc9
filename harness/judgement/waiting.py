"""Finds parts of a batch, or members, that are worked on one after the other, though each has a device of its own.

An op may wait for others of which it reads nothing (``tf.control_dependencies``), or reads what changes nothing in its
result, such as 0 times a number. Where most of what one device does waits so for most of what another one does, and not
the other way round, only one of them works at a time. What TensorFlow lets wait, so that variables are read and written
in order, is left alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain

from harness.devices.device import Devices
from harness.devices.name import DeviceName
from harness.evidence.arithmetic import CALLS, MOVEMENT, PYTHON
from harness.evidence.op import Op
from harness.evidence.trace import Trace
from harness.judgement.accounting import Account
from harness.judgement.diagnosis.wording import listed
from harness.judgement.provenance import SEVERAL, SHAPES, Provenance
from harness.judgement.strays import first_of, lines, stray
from harness.judgement.wiring import IDENTITIES, Wiring, reached, sources_of
from harness.proof.computed import Computed
from harness.records import Finding

_SERIAL = (
    "the work of one shard or member waits for that of another one, of which it reads nothing, so that their devices "
    "work one after the other; take it out of tf.control_dependencies"
)
_SERIAL_BY_DATA = (
    "the work of one shard or member reads what another one has made, which changes nothing in its results, so that "
    "their devices work one after the other; leave it out"
)
#: Ops that TensorFlow runs in the order of the program.
_CHECKS = frozenset({"Assert", "CheckNumerics", "CheckNumericsV2", "PrintV2"})
#: More than this share of a device's work waits, and is waited for.
_MOST = 0.5
#: The names of the op that made what is read, and of the one that reads it.
_Read = tuple[str, str]


def judge_waiting(account: Account, mode: str) -> Iterator[Finding]:
    """At most one finding of the kind ``serial-devices``, for what waits by control dependencies."""
    yield from _judged(account, _waits(account), frozenset(), _SERIAL, mode)


def judge_idle_reads(trace: Trace, devices: Devices, computed: Computed, mode: str) -> Iterator[Finding]:
    """At most one finding of the kind ``serial-devices``, for what reads results that change nothing in its own."""
    wiring = Wiring(trace)
    idle = _idle_reads(wiring, computed)
    waits: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for read, reader in sorted(idle):
        waits[(read,)].append(reader)
    if waits:
        account = Account(Provenance(wiring, idle), devices, trace)
        yield from _judged(account, waits, idle, _SERIAL_BY_DATA, mode)


def _idle_reads(wiring: Wiring, computed: Computed) -> set[_Read]:
    """What ops read though their results are a number that is known beforehand, or are another operand's numbers."""
    found: set[_Read] = set()
    for op in wiring.ops:
        sources = sources_of(op)
        if op.role != "forward" or op.type in SHAPES or not sources or len(op.dtypes) > 1:
            continue
        if computed.is_constant(op.name):
            found.update((name, op.name) for name, _ in sources)
        elif len(sources) > 1 and (made := computed.value(op.name)) is not None:
            same = [computed.value(*source) == made for source in sources]
            if any(same):
                found.update((name, op.name) for (name, _), alike in zip(sources, same, strict=True) if not alike)
    return {(read, reader) for read, reader in found if read in wiring.by_name}


def _judged(
    account: Account, waits: Mapping[tuple[str, ...], list[str]], idle: Set[_Read], cause: str, mode: str
) -> Iterator[Finding]:
    if not waits:
        return
    vain = _in_vain(account.wiring, idle)
    for family in (*(cut.family for cut in account.cuts), *account.branches):
        parts: dict[int, list[Op]] = defaultdict(list)
        for op in account.work:
            if family.get(op.name, SEVERAL) != SEVERAL and op.name not in vain:
                parts[family[op.name]].append(op)
        if any(len({account.places[op.name] for op in ops}) > 1 for ops in parts.values()):
            continue
        done: dict[DeviceName, list[Op]] = defaultdict(list)
        for op in chain.from_iterable(parts.values()):
            done[account.places[op.name]].append(op)
        waiting: dict[tuple[DeviceName, DeviceName], list[Op]] = {}
        for device, ops in done.items() if len(done) > 1 else ():
            late = _after(account, waits, idle, ops)
            for other in done.keys() - {device}:
                found = [op for op in done[other] if op.name in late]
                if _is_most(account, found, done[other]):
                    waiting[device, other] = found
        serial = {other: ops for (device, other), ops in waiting.items() if (other, device) not in waiting}
        if serial:
            ops = [op for _, each in sorted(serial.items()) for op in each]
            yield stray(
                "serial-devices",
                cause,
                first_of(ops),
                mode,
                devices=serial,
                expected="work on several devices at a time",
                found=f"{listed([device.short for device in sorted(serial)])} waiting for other devices",
                place=lines(account.trace, ops),
            )
            return


def _in_vain(wiring: Wiring, idle: Set[_Read]) -> set[str]:
    """The ops whose results change nothing in any other."""
    found: set[str] = set()
    for op in reversed(wiring.ops if idle else ()):
        readers = wiring.readers(op)
        if readers and all((op.name, each.name) in idle or each.name in found for each in readers):
            found.add(op.name)
    return found


def _waits(account: Account) -> dict[tuple[str, ...], list[str]]:
    """The ops that wait for others because the program says so: those that are waited for, and the ones that wait."""
    wiring = account.wiring
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for op in wiring.ops:
        first = [name for name, port in zip(op.inputs, op.ports, strict=False) if port < 0]
        makers = [wiring.by_name[name] for name in first if name in wiring.by_name]
        # A group of ops is an op too.
        seen = reached(
            makers, lambda each: wiring.before(each) if each.type == "NoOp" or each.type in IDENTITIES else ()
        )
        computed = tuple(sorted(each.name for each in seen if _only_computes(account, each)))
        if computed and op.type != "NoOp":
            found[computed].append(op.name)
    return found


def _only_computes(account: Account, op: Op) -> bool:
    """Whether an op has no effect but its result, so that TensorFlow itself lets nothing wait for it."""
    stateless = op.name not in account.trace.variables and op.type not in CALLS | PYTHON
    return stateless and op.role in ("forward", "gradient") and op.type not in MOVEMENT | _CHECKS


def _after(
    account: Account, waits: Mapping[tuple[str, ...], list[str]], idle: Set[_Read], work: Sequence[Op]
) -> set[str]:
    """The ops that wait for most of this work, and depend on none of it."""
    wiring = account.wiring
    late: list[str] = []
    for before, after in waits.items():
        behind = {op.name for op in reached((wiring.by_name[name] for name in before), wiring.before)}
        if _is_most(account, [op for op in work if op.name in behind], work):
            late += after
    everything = {op.name for op in reached((wiring.by_name[name] for name in late), wiring.readers)}
    return everything - {op.name for op in reached(work, lambda op: _reading(account, op, idle))}


def _reading(account: Account, op: Op, idle: Set[_Read]) -> Iterable[Op]:
    """The ops that read a result of an op, which changes something in theirs."""
    readers = (each for each in account.wiring.readers(op) if (op.name, each.name) not in idle)
    return (each for each in readers if any(name == op.name for name, _ in sources_of(each)))


def _is_most(account: Account, some: Sequence[Op], whole: Sequence[Op]) -> bool:
    return sum(map(account.weight, some)) > _MOST * sum(map(account.weight, whole))
