"""Finds work that none of the devices of a program did: another device, or Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Set
from dataclasses import replace

from harness.devices.device import Devices
from harness.devices.name import DeviceName
from harness.evidence.arithmetic import JOINS, SPLITS, computes, floats
from harness.evidence.op import Op
from harness.evidence.trace import Trace
from harness.judgement.accounting import Account, is_product
from harness.judgement.provenance import SLICES, VIEWS
from harness.judgement.strays import first_of, lines, named, stray
from harness.judgement.wiring import IDENTITIES, Wiring, reached, sources_of
from harness.records import Finding

#: The share of what each device would do if all did the same, from which on work without a scope is a finding.
_UNSCOPED = 0.05
_NOT_MEANT = "a device scope names a device that the program must not use; "
_STRATEGY = (
    "a tf.distribute strategy created without devices uses every device, so the global batch may grow with the number "
    "of devices"
)
_FIRST_GPU = (
    "work without a device scope ran on a device that the program must not use; TensorFlow runs it on the first GPU: "
    "give it the scope of one of the devices, or of the host"
)
PYTHON_DID_IT = (
    "values come into the device scopes as new constants: NumPy or Python did the work, on the host; write it with "
    "TensorFlow ops"
)
_CUTS_AND_VIEWS = SPLITS | SLICES | VIEWS
#: A program that does less than this share of the reference's products leaves some of them to Python.
_NEARLY_ALL = 0.95


def judge_outside(account: Account, devices: Devices, mode: str) -> Iterator[Finding]:
    """Ops that ran, in its scope or in none, on a device that the program is not meant to use (FAULTS C06)."""
    trace = account.trace
    meant = {device.parsed for device in devices}
    # What belongs to no shard is the host's, and that of a device on another host is the CPU beside it.
    hosts = {replace(device, kind="CPU", index=0) for device in (*meant, DeviceName.parse(devices.host))}
    beyond: dict[DeviceName, list[Op]] = defaultdict(list)
    unscoped: dict[DeviceName, list[Op]] = defaultdict(list)
    work = {op.name for op in account.work}
    for op in trace.ops:
        if op.device is None or op.device in meant | hosts or op.role == "gradient" or not computes(op):
            continue
        if op.requested is None or op.requested.index is None:
            if op.name in work:
                unscoped[op.device].append(op)
        elif op.device.matches(op.requested):
            beyond[op.device].append(op)
    unscoped = {device: ops for device, ops in unscoped.items() if account.shares.get(device, 0.0) >= _UNSCOPED}
    strategy = any(op.role == "collective" or "replica_" in op.name for op in trace.ops)
    remedy = _STRATEGY if strategy else "name one of the devices, or the host"
    for cause, found in ((_NOT_MEANT + remedy, beyond), (_FIRST_GPU, unscoped if not strategy else {})):
        ops = [op for _, each in sorted(found.items()) for op in each]
        if ops:
            yield stray(
                "op-placement",
                cause,
                first_of(ops),
                mode,
                devices=found,
                expected=named(device.parsed for device in devices),
                wanted=[device.parsed for device in devices],
                found=named(found),
                place=lines(trace, ops),
            )


def judge_python(account: Account, devices: Devices, mode: str) -> Iterator[Finding]:
    """Eager code that reads a part of its data in Python, and goes on with a new constant in a device's scope.

    The trace knows no op that reads the part, and nothing that the constant was made of.
    """
    meant = {device.parsed for device in devices}
    found = [] if len(meant) < 2 else [*_from_python(account, meant)]
    if found:
        yield stray(
            "op-placement",
            PYTHON_DID_IT,
            first_of(found),
            mode,
            devices=[DeviceName.parse(devices.host)],
            expected=named(device.parsed for device in devices),
            wanted=[device.parsed for device in devices],
            found=f"Python on {DeviceName.parse(devices.host).short}",
            place=lines(account.trace, found),
        )


def judge_python_layers(trace: Trace, reference: Callable[[], Trace], devices: Devices, mode: str) -> Iterator[Finding]:
    """An argument that eager code reads in Python alone, and multiplies with weights there: so does the reference.

    To be asked where the results are right. They depend on an argument that no op reads, other than to cut it, and the
    ops do less of the products of matrices than the reference.
    """
    unread = _unread_rows(trace)
    if not unread or len(devices) < 2:
        return
    alone = reference()
    known = {name for name in unread if name not in _unread_rows(alone)}
    if not known or _products(trace) > _NEARLY_ALL * _products(alone):
        return
    wiring = Wiring(trace)
    read = [op for op in trace.ops if op.type in IDENTITIES and not wiring.readers(op)]
    copies = [op for op in read if any(maker.role == "variable" for maker in wiring.before(op))]
    cuts = [op for op in trace.ops if any(name in known for name in op.inputs)]
    yield stray(
        "op-placement",
        PYTHON_DID_IT,
        f"argument {min(known).removeprefix('argument')}",
        mode,
        devices=[DeviceName.parse(devices.host)],
        expected=named(device.parsed for device in devices),
        wanted=[device.parsed for device in devices],
        found=f"Python on {DeviceName.parse(devices.host).short}",
        place=lines(trace, copies or cuts),
    )


def _unread_rows(trace: Trace) -> set[str]:
    """The arguments of floating numbers in rows that no op reads, other than to cut or to view them."""
    readers: dict[str, list[Op]] = defaultdict(list)
    for op in trace.ops:
        for name, _ in sources_of(op):
            readers[name].append(op)
    unread = set()
    for name, (dtype, rank, *_) in trace.arguments.items():
        if floats([str(dtype)]) and isinstance(rank, int) and rank > 1:
            ops = reached(readers[name], lambda op: readers[op.name] if op.type in _CUTS_AND_VIEWS else ())
            if all(op.type in _CUTS_AND_VIEWS for op in ops):
                unread.add(name)
    return unread


def _products(trace: Trace) -> float:
    return sum(trace.work.get(op.name) or 0.0 for op in trace.ops if op.role == "forward" and is_product(op))


def _from_python(account: Account, meant: Set[DeviceName]) -> Iterator[Op]:
    """The ops of a tower that begins with a new constant, where other towers begin with their parts, or none does."""
    wiring = account.wiring
    parts, arguments = _left_unread(account), _unread_arguments(account)
    if not parts and not arguments:
        return
    none_given = not any(account.depends(op) for op in account.work)
    anew = _begun_anew(account)
    for join in wiring.ops:
        if not floats(join.dtypes) or "/" in join.name:
            continue
        makers = [wiring.by_name[name] for name, _ in account.provenance.sources[join.name] if name in wiring.by_name]
        scopes = {op.requested for op in makers if account.depends(op)}
        made = [op for op in makers if op.requested in meant - scopes and op.name in anew]
        if none_given and parts and join.type in JOINS:
            # Where all of them multiply it with weights, Python has prepared the rows.
            done = all(op.name in anew for op in makers) and not all(anew.get(op.name) for op in makers)
            if done and len({op.requested for op in makers} - {None}) > 1:
                yield from made or makers
                return
        elif scopes and made:
            products = any(anew[op.name] for op in made)
            if (parts and join.type in JOINS) or (arguments and products and _rows_meet(account, makers)):
                yield from made
                return


def _left_unread(account: Account) -> bool:
    """Whether a tensor is cut into parts of which some are read by no op."""
    wiring = account.wiring
    for op in wiring.ops:
        if op.type in SPLITS | SLICES | {"StridedSlice"} and account.depends(op) and "/" not in op.name:
            read = {port for reader in wiring.readers(op) for name, port in sources_of(reader) if name == op.name}
            if len(read) < len(op.dtypes):
                return True
    return False


def _unread_arguments(account: Account) -> bool:
    """Whether no op reads one of the arguments that may be a batch, though ops read another one."""
    read = {name for sources in account.provenance.sources.values() for name, _ in sources}
    batches = {name for name, (_, rank, *_) in account.trace.arguments.items() if rank != 0}
    return bool(read & batches) and not read.issuperset(batches)


def _begun_anew(account: Account) -> dict[str, bool]:
    """The ops of eager code that depend on no argument, and on a new constant; and whether on a product with one.

    A new constant is a tensor that no op made, and that is more than what one weight is scaled by.
    """
    anew: dict[str, bool] = {}
    spoiled: set[str] = set()
    for op in account.wiring.ops:
        sources = [name for name, _ in account.provenance.sources[op.name]]
        if op.role == "data" or "Random" in op.type or "/" in op.name or spoiled.intersection(sources):
            spoiled.add(op.name)
        elif not account.depends(op) and op.role == "forward":
            product = is_product(op) and len(sources) == 1
            if product or (computes(op) and not sources) or any(name in anew for name in sources):
                anew[op.name] = product or any(anew.get(name, False) for name in sources)
    return anew


def _rows_meet(account: Account, makers: list[Op]) -> bool:
    """Whether what some ops made has as many rows, and axes."""
    shapes = [tuple((account.trace.shapes.get(op.name) or ((),))[0] or ()) for op in makers]
    return len({(len(shape), shape[:1]) for shape in shapes}) == 1 and len(shapes[0]) > 0
