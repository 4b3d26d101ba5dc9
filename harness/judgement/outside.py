"""Finds work that none of the devices of a program did: another device, or Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from harness.devices.device import Devices
from harness.devices.name import DeviceName
from harness.evidence.op import Op
from harness.judgement.accounting import Account
from harness.judgement.arithmetic import JOINS, SPLITS, computes, floats
from harness.judgement.provenance import SLICES
from harness.judgement.strays import first_of, lines, named, stray
from harness.judgement.wiring import reached
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
    """Eager code whose parts end in Python, and whose results begin with new constants in several scopes.

    No op computes with what the program was given, and what is joined depends on nothing that the trace knows.
    """
    wiring, sources = account.wiring, account.provenance.sources
    if any(account.depends(op) for op in account.work):
        return
    unread = [
        op
        for op in wiring.ops
        if op.type in SPLITS | SLICES | {"StridedSlice"} and account.depends(op) and not wiring.readers(op)
    ]
    for join in wiring.ops if unread and len(devices) > 1 else ():
        makers = [wiring.by_name[name] for name, _ in sources[join.name] if name in wiring.by_name]
        if join.type not in JOINS or not floats(join.dtypes) or len({op.requested for op in makers} - {None}) < 2:
            continue
        behind = list(reached(makers, wiring.before))
        if any(op.role in ("variable", "data") or "Random" in op.type or "/" in op.name for op in behind):
            continue
        if any(map(account.depends, behind)):
            continue  # such as rows that are picked from an argument
        own = [op for op in makers if op.requested in {device.parsed for device in devices}]
        yield stray(
            "op-placement",
            "values come into the device scopes as new constants: NumPy or Python did the work, on the host; write it "
            "with TensorFlow ops",
            first_of(own or makers),
            mode,
            devices=[DeviceName.parse(devices.host)],
            expected=named(device.parsed for device in devices),
            wanted=[device.parsed for device in devices],
            found=f"Python on {DeviceName.parse(devices.host).short}",
            place=lines(account.trace, own or makers),
        )
        return
