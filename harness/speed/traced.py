"""What one call of either side does, from a traced run of its own: nothing that is measured is traced.

Besides transfers it shows the usual reasons why a speedup is none (FAULTS S04, S05): each is told in a sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from harness._tensorflow import count_reads
from harness.devices.device import Device
from harness.devices.name import DeviceName
from harness.errors import EvidenceError
from harness.evidence.op import Op, Transfer
from harness.evidence.trace import Trace, trace

#: Ops of these roles are the work of a program. The rest (constants, control flow, variables' handles, pipelines)
#: TensorFlow puts where it likes.
_WORK = frozenset({"forward", "gradient", "update"})
#: Splitting and joining may be done on the host whatever the devices are; so may what only looks at shapes.
_ANYWHERE = frozenset(
    {"Cast", "Concat", "ConcatV2", "ExpandDims", "GatherV2", "Pack", "Prod", "Range", "Reshape", "Shape", "ShapeN"}
    | {"Size", "Slice", "Split", "SplitV", "Squeeze", "StridedSlice", "Unpack"}
)
#: Fewer bytes than this are a step counter or a learning rate, not data.
_DATA_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Traced:
    """Transfers of one call of ``parallel``, and what is suspicious of both sides.

    ``transfers`` and ``transferred_bytes`` are ``None`` where the call could not be traced, and where it ran no op in
    this process: what other processes do is not seen here. The bytes are those of transfers whose size is known.
    """

    transfers: int | None
    transferred_bytes: int | None
    warnings: tuple[str, ...]


def look_at_both(single: Callable[[], Any], parallel: Callable[[], Any], devices: Sequence[Device]) -> Traced:
    """Call each side once, traced; both, also where one cannot be traced: they may keep step in their state."""
    warnings: list[str] = []
    traces: list[Trace | None] = []
    for name, side in (("single", single), ("parallel", parallel)):
        with count_reads() as reads:
            try:
                traces.append(trace(side))
            except EvidenceError as error:
                warnings.append(f"{name} could not be traced, so that where it ran is not known: {error}")
                traces.append(None)
        if reads.times:
            warnings.append(
                f"{name} reads a tensor {reads.times} time(s) in Python (numpy(), float(), if, print) in each call: "
                "until it has the value, it starts nothing on any device"
            )
    if traces[0] is not None:
        warnings += about_single(traces[0].ops, devices)
    if traces[1] is not None:
        warnings += about_parallel(traces[1].ops, devices)
    if traces[1] is None or not traces[1].ops:
        return Traced(None, None, tuple(warnings))
    transfers = list(traces[1].transfers)
    warnings += about_transfers(transfers, devices)
    return Traced(len(transfers), sum(moved.size_bytes or 0 for moved in transfers), tuple(warnings))


def about_single(ops: Iterable[Op], devices: Sequence[Device]) -> list[str]:
    """The baseline has to run on one of the devices, and on that one alone."""
    used = work_by_device(ops)
    own = {device.parsed for device in devices}
    on_own = {name: count for name, count in used.items() if name in own}
    elsewhere = {name: count for name, count in used.items() if name not in own}
    if not used:
        return ["single ran no op of which TensorFlow told where: nothing shows that it is a baseline of one device"]
    if not on_own:
        return [f"single ran on {_listed(elsewhere)}, which is none of the devices: it is no baseline for them"]
    found = []
    if len(on_own) > 1:
        found.append(f"single ran on {len(on_own)} of the devices ({_listed(on_own)}): it is no baseline of one device")
    if elsewhere:
        found.append(f"single ran ops on {_listed(elsewhere)} too, which is none of the devices")
    return found


def about_parallel(ops: Iterable[Op], devices: Sequence[Device]) -> list[str]:
    """The parallel side has to use each device, and to let them run at the same time."""
    ops = list(ops)
    if not ops:
        return ["parallel ran no op in this process: nothing here shows which devices work"]
    used = work_by_device(ops)
    idle = [device.parsed.short for device in devices if device.parsed not in used]
    found = []
    if idle:
        found.append(
            f"parallel ran no op on {', '.join(idle)}: {len(devices) - len(idle)} of {len(devices)} devices work"
        )
    if len(devices) > 1 and all(device.kind == "logical-cpu" for device in devices):
        eager = work_by_device(op for op in ops if "/" not in op.name)
        taking_turns = {name: count for name, count in eager.items() if name in {device.parsed for device in devices}}
        if len(taking_turns) > 1:
            found.append(
                f"parallel runs ops one by one outside of any tf.function ({_listed(taking_turns)}): unless each "
                "device has a Python thread of its own, they take turns"
            )
    return found


def about_transfers(transfers: Iterable[Transfer], devices: Sequence[Device]) -> list[str]:
    """Data that goes through the host's memory in each call, where the host is none of the devices."""
    own = {device.parsed for device in devices}
    copies = [
        moved
        for moved in transfers
        if (moved.source in own) != (moved.destination in own)
        and "CPU" in (moved.source.kind, moved.destination.kind)
        and (moved.size_bytes or 0) >= _DATA_BYTES
    ]
    if not copies:
        return []
    size_mb = sum(moved.size_bytes or 0 for moved in copies) / 1e6
    return [
        (
            f"each call of parallel copies {size_mb:.1f} MB between the host and the devices ({len(copies)} copies): "
            "keep on the devices what does not change"
        )
    ]


def work_by_device(ops: Iterable[Op]) -> Counter[DeviceName]:
    """How many ops that do the work of a program ran on each device."""
    return Counter(op.device for op in ops if op.device is not None and op.role in _WORK and op.type not in _ANYWHERE)


def _listed(counts: dict[DeviceName, int]) -> str:
    return ", ".join(f"{name.short}: {count} op(s)" for name, count in sorted(counts.items(), key=str))
