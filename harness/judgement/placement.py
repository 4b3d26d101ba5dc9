"""Judges where the ops of a trace ran."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from harness.devices.device import Device, Devices
from harness.devices.name import DeviceName
from harness.evidence.op import Op
from harness.evidence.trace import Trace
from harness.judgement.arithmetic import JOINS, LOOKUPS, PYTHON, SPLITS, computes, proven
from harness.judgement.shards import Misplaced, judge_shards
from harness.judgement.wiring import Wiring
from harness.records import Finding


def judge_placement(
    trace: Trace, devices: Devices, mode: str, *, rows: int | None, on_host: bool = True
) -> list[Finding]:
    """Findings of the kinds ``op-placement``, ``gradient-placement`` and ``unused-device``.

    ``rows`` is the size of the batch, where there is one: fewer rows than devices leave devices out. ``on_host`` says
    that what several devices made is joined on the host, as programs do that share out a batch.
    """
    wiring = Wiring(trace)
    misplaced = [
        *_elsewhere(trace),
        *(judge_shards(wiring, devices, trace) if on_host else ()),
    ]
    findings = [
        *_merge("op-placement", misplaced, mode),
        *_merge("gradient-placement", _gradients_elsewhere(wiring), mode),
    ]
    return [*findings, *_beyond(trace, devices, mode), *_unused(trace, wiring, devices, mode, rows)]


def _merge(kind: str, misplaced: Iterable[Misplaced], mode: str) -> list[Finding]:
    """One finding for ops with the same fault on the same device, naming the first of them."""
    groups: dict[tuple[DeviceName | None, DeviceName, str], list[Op]] = defaultdict(list)
    for op, expected, message in misplaced:
        groups[op.device, expected, message].append(op)
    findings = []
    for (device, expected, message), ops in groups.items():
        first = f"{ops[0].name} ({ops[0].type})"
        more = _and_more(ops[1:])
        place = None if device is None else str(device)
        found = place or "optimised away: its work was done on another device"
        findings.append(Finding(kind, f"{first}{more} ({mode})", place, str(expected), found, message))
    return findings


def _and_more(ops: Sequence[Op]) -> str:
    return f" and {len(ops)} more ({', '.join(sorted({op.type for op in ops}))})" if ops else ""


def _elsewhere(trace: Trace) -> Iterator[Misplaced]:
    """Ops that ran elsewhere than their scope asked (FAULTS P05, P06, P11)."""
    for op in trace.ops:
        if op.device is None or op.requested is None or op.device.matches(op.requested):
            continue
        if computes(op) or (op.role == "forward" and op.type in JOINS | SPLITS):
            message = "the op did not run on the device that its scope requests; soft placement moves ops silently"
            if op.unit is not None:
                message = "XLA compiled the function for one device and ignored the device scopes inside"
            elif op.type in PYTHON:
                message = "a Python function runs on the host, whatever its device scope; write it in TensorFlow's ops"
                if not any(dtype.startswith(("float", "bfloat", "complex")) for dtype in op.dtypes):
                    continue
            elif op.type in LOOKUPS:
                continue  # judged by their share of a shard's work
            yield op, op.requested, message


def _beyond(trace: Trace, devices: Devices, mode: str) -> Iterator[Finding]:
    """Ops that ran, as they were asked to, on a device that the program is not meant to use (FAULTS C06)."""
    meant = {device.parsed for device in devices}
    # What belongs to no shard is the host's, and that of a device on another host is the CPU beside it.
    hosts = {replace(device, kind="CPU", index=0) for device in (*meant, DeviceName.parse(devices.host))}
    beyond: dict[DeviceName, list[Op]] = defaultdict(list)
    for op in trace.ops:
        # Only what a scope asked for: without one TensorFlow takes the first GPU, meant or not.
        if op.device is None or op.requested is None or op.requested.index is None:
            continue
        if op.role != "gradient" and computes(op) and op.device.matches(op.requested):
            beyond[op.device].append(op)
    for device, ops in sorted(beyond.items()):
        if device not in meant | hosts:
            first = f"{ops[0].name} ({ops[0].type})"
            more = _and_more(ops[1:])
            yield Finding(
                "op-placement",
                f"{first}{more} ({mode})",
                str(device),
                f"ops on {', '.join(each.parsed.short for each in devices)} only",
                f"ops on {device.short}",
                "a device scope names a device that the program must not use; a strategy created without devices "
                "uses every device of the machine, and the global batch changes with their number",
            )


def _gradients_elsewhere(wiring: Wiring) -> Iterator[Misplaced]:
    for op in wiring.ops:
        forward = wiring.by_name.get(op.forward or "")
        if op.device is None or op.role != "gradient" or forward is None or not computes(op):
            continue
        if forward.device is None or forward.device == op.device or not computes(forward):
            continue
        message = "the backward op is not on its forward op's device; harness.colocate_gradients() puts it there"
        yield op, forward.device, message


def gradient_ops(trace: Trace) -> int:
    """Backward ops of which it is proven that they, and the forward ops that they belong to, ran where."""
    by_name = {op.name: op for op in trace.ops}
    return sum(
        1
        for op in proven(trace)
        if op.role == "gradient"
        and (forward := by_name.get(op.forward or "")) is not None
        and forward.device is not None
    )


def _unused(trace: Trace, wiring: Wiring, devices: Devices, mode: str, rows: int | None) -> list[Finding]:
    forward = [op for op in proven(trace) if op.role == "forward"]
    if not forward:
        return []
    expected = len(devices) if rows is None else min(len(devices), max(rows, 1))
    used = {op.device for op in forward}
    idle = [device for device in devices if device.parsed not in used and not _simplified(device, wiring)]
    missing = expected - (len(devices) - len(idle))
    if missing <= 0:
        return []
    ran = ", ".join(sorted({device.short for device in used if device is not None}))
    return [
        Finding(
            "unused-device",
            f"{device.parsed.short} ({mode})",
            device.name,
            f"ops on {expected} of {len(devices)} devices",
            f"ops on {ran} only",
            "no op of the program ran on this device",
        )
        for device in idle
    ]


def _simplified(device: Device, wiring: Wiring) -> bool:
    """Whether the program asked this device for work that TensorFlow found a shorter way to do, such as times 1."""
    return any(
        op.role == "forward"
        and op.device is None
        and op.requested is not None
        and op.requested.index is not None
        and device.parsed.matches(op.requested)
        and computes(op)
        and wiring.users(op)
        for op in wiring.ops
    )


def judge_variables(made: Sequence[Any], devices: Devices, mode: str) -> list[Finding]:
    """Variables that came into being during the first parallel call: they are where that call happened to be."""
    if len(devices) < 2:
        return []
    return [
        Finding(
            "variable-placement",
            f"variable {variable.name} ({mode})",
            str(variable.device) or None,
            "a variable created before the call, on a device chosen for it",
            f"created by the first call, on {variable.device or 'the default device'}",
            "a variable is created on the device of the first call; create it beforehand, or build the model",
        )
        for variable in made
        if getattr(variable, "trainable", False)
    ]


def judge_replicas(trace: Trace, devices: Devices, mode: str) -> list[Finding]:
    """Findings of the same kinds for the replicas of a strategy, which splits and joins by its own rules."""
    wiring = Wiring(trace)
    return [
        *_merge("op-placement", _elsewhere(trace), mode),
        *_merge("gradient-placement", _gradients_elsewhere(wiring), mode),
        *_beyond(trace, devices, mode),
        *_unused(trace, wiring, devices, mode, None),
    ]
