"""Traces one call of either side, apart from the measurement, and warns of the usual causes of no speedup.

See FAULTS S04 and S05.
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
from harness.plural import plural

#: Roles of the ops that do the work of a program. TensorFlow places the others (constants, control flow, variables'
#: handles, pipelines) freely.
_WORK = frozenset({"forward", "gradient", "update"})
#: Ops that may run on the host: splitting, joining, and reading shapes.
_ANYWHERE = frozenset(
    {"Cast", "Concat", "ConcatV2", "ExpandDims", "GatherV2", "Pack", "Prod", "Range", "Reshape", "Shape", "ShapeN"}
    | {"Size", "Slice", "Split", "SplitV", "Squeeze", "StridedSlice", "Unpack"}
)
#: Smaller transfers are step counters or learning rates, not data.
_DATA_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Traced:
    """Transfers of one call of ``parallel``, and warnings about both sides.

    ``transfers`` and ``transferred_bytes`` are ``None`` if the call could not be traced, or ran no op in this process.
    The bytes are those of transfers of known size.
    """

    transfers: int | None
    transferred_bytes: int | None
    warnings: tuple[str, ...]


def look_at_both(single: Callable[[], Any], parallel: Callable[[], Any], devices: Sequence[Device]) -> Traced:
    """Trace one call of each side: of both, even if one cannot be traced, so that their states stay in step."""
    warnings: list[str] = []
    traces: list[Trace | None] = []
    for name, side in (("single", single), ("parallel", parallel)):
        with count_reads() as reads:
            try:
                traces.append(trace(side))
            except EvidenceError as error:
                warnings.append(f"{name} could not be traced, so its devices are unknown: {error}")
                traces.append(None)
        if reads.times:
            warnings.append(
                f"{name} reads a tensor {plural(reads.times, 'time')} per call in Python (numpy(), "
                "float(), if, print), and "
                "starts "
                "nothing on any device until it has the value"
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
    """Warn unless the baseline runs on exactly one of the devices."""
    used = work_by_device(ops)
    own = {device.parsed for device in devices}
    on_own = {name: count for name, count in used.items() if name in own}
    elsewhere = {name: count for name, count in used.items() if name not in own}
    if not used:
        return ["the devices of single's ops are unknown: nothing shows that it is a baseline of one device"]
    if not on_own:
        return [f"single ran on {_listed(elsewhere)}, which is none of the devices: it is not a baseline for them"]
    found = []
    if len(on_own) > 1:
        found.append(
            f"single ran on {len(on_own)} of the devices ({_listed(on_own)}): it is not a baseline of one device"
        )
    if elsewhere:
        found.append(f"single also ran ops on {_listed(elsewhere)}, which is none of the devices")
    return found


def about_parallel(ops: Iterable[Op], devices: Sequence[Device]) -> list[str]:
    """Warn unless the parallel side uses each device, and at the same time."""
    ops = list(ops)
    if not ops:
        return ["parallel ran no op in this process, so its devices are unknown"]
    used = work_by_device(ops)
    idle = [device.parsed.short for device in devices if device.parsed not in used]
    found = []
    if idle:
        found.append(
            f"parallel ran no op on {', '.join(idle)}: only {len(devices) - len(idle)} of {len(devices)} devices work"
        )
    if len(devices) > 1 and all(device.kind == "logical-cpu" for device in devices):
        eager = work_by_device(op for op in ops if "/" not in op.name)
        in_turn = {name: count for name, count in eager.items() if name in {device.parsed for device in devices}}
        if len(in_turn) > 1:
            found.append(
                f"parallel runs ops one by one outside a tf.function ({_listed(in_turn)}): unless each device has "
                "its own "
                "Python thread, the devices take turns"
            )
    return found


def about_transfers(transfers: Iterable[Transfer], devices: Sequence[Device]) -> list[str]:
    """Warn of data that passes through the host in each call, if the host is none of the devices."""
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
            f"each call of parallel copies {size_mb:,.1f} MB between the host and the devices ({len(copies)} copies): "
            "keep constant data on the devices"
        )
    ]


def work_by_device(ops: Iterable[Op]) -> Counter[DeviceName]:
    """Count the ops on each device that do the work of a program."""
    return Counter(op.device for op in ops if op.device is not None and op.role in _WORK and op.type not in _ANYWHERE)


def _listed(counts: dict[DeviceName, int]) -> str:
    return ", ".join(f"{name.short}: {plural(count, 'op')}" for name, count in sorted(counts.items(), key=str))
