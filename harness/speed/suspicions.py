"""Warnings about a measurement, a sentence each: about its times, and about a trace of one call of either side.

A warning changes no figure. The causes are FAULTS S02 to S05.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from harness._tensorflow import count_reads
from harness.devices.device import Device
from harness.devices.name import DeviceName
from harness.errors import EvidenceError
from harness.evidence.op import Op, Transfer
from harness.evidence.trace import Trace
from harness.evidence.tracing import trace
from harness.plural import plural
from harness.speed.estimate import FEWEST_PAIRS, correlation, pairs_needed, relative_half_width
from harness.speed.pairs import Samples
from harness.speed.record import Interval

#: Accepted share of a call for waiting for the devices.
_LARGEST_WAIT = 0.10
#: Far beyond any device: a higher rate is a mistake in ``work`` or in waiting. A core: 6 GHz, with four units of 16
#: float32 multiply-adds. The others are round numbers, ten times the fastest of 2026.
_MOST_FLOPS_PER_S = {"CPU": 6e9 * 4 * 16 * 2, "GPU": 1e17}
_MOST_BYTES_PER_S = {"CPU": 1e13, "GPU": 1e14}
#: Roles of the ops that do the work of a program. TensorFlow places the others (constants, control flow, variables'
#: handles, pipelines) freely.
_WORK = frozenset({"forward", "gradient", "update"})
#: Ops that may run on the host: splitting, joining, and reading shapes.
_ANYWHERE = frozenset(
    {"Cast", "Concat", "ConcatV2", "EnsureShape", "ExpandDims", "GatherV2", "Pack", "Prod", "Range", "Reshape", "Shape"}
    | {"ShapeN", "Size", "Slice", "Split", "SplitV", "Squeeze", "StridedSlice", "Unpack"}
)
#: Smaller transfers are step counters or learning rates, not data.
_DATA_BYTES = 64 * 1024


def about_times(samples: Samples, speedup: Interval, half_width: float, devices: Sequence[Device]) -> list[str]:
    """Warn of few pairs, a wide interval, no gain, too large a gain, and correlated pairs."""
    found = []
    pairs = len(samples.single_ns)
    if samples.stopped != "precise":
        found.append(
            f"the interval is ± {relative_half_width(speedup):.1%} instead of ± {half_width:.1%} after {pairs:,} "
            f"pairs; about {pairs_needed(speedup, pairs, half_width):,} pairs are needed"
        )
    if pairs < 2 * FEWEST_PAIRS:
        call_ms = median(samples.single_ns) / 1e6
        found.append(f"only {pairs} pairs: a call takes {call_ms:.0f} ms; raise the time budget")
    if len(devices) > 1 and speedup.upper < 1.0:
        found.append(f"slower on {plural(len(devices), 'device')} than on one: speedup {speedup.value:.2f}")
    if speedup.lower > len(devices):
        found.append(
            f"a speedup of {speedup.value:.2f} exceeds the number of devices ({len(devices)}): `single` does more "
            "work than `parallel`, or is slowed down"
        )
    correlated = correlation(samples.single_ns, samples.parallel_ns)
    if correlated.widens > 1.0:
        found.append(
            f"neighbouring pairs are correlated ({correlated.value:.2f}), so the speedup drifts; the interval "
            f"was made {correlated.widens:.1f} times as wide"
        )
    return found


def about_traces(traces: int, calls: int) -> list[str]:
    """Warn of functions traced during the measurement (FAULTS S02)."""
    sentence = (
        f"functions were traced {plural(traces, 'time')} in {calls:,} measured calls, and the times include this; make "
        "each tf.function once, outside the call, and pass tensors of the same shape instead of Python numbers"
    )
    return [sentence] if traces else []


def about_waiting(wait_ns: float, samples: Samples) -> list[str]:
    """Warn of calls so short that waiting for the devices dominates."""
    call_ns = min(median(samples.single_ns), median(samples.parallel_ns))
    sentence = (
        f"a call takes {call_ns / 1e3:,.0f} µs, of which it waits {wait_ns / 1e3:,.0f} µs for its outputs: too little "
        "work per call to show a speedup"
    )
    return [sentence] if wait_ns > _LARGEST_WAIT * call_ns else []


def about_rates(
    flops_per_s: float | None, bytes_per_s: float | None, device: Device, count: int, side: str
) -> list[str]:
    """Warn of rates that ``count`` such devices cannot reach: ``work`` is wrong, or not waited for (FAULTS S03)."""
    kind = device.parsed.kind or ""
    rates = ((flops_per_s, "FLOP/s", _MOST_FLOPS_PER_S), (bytes_per_s, "bytes/s", _MOST_BYTES_PER_S))
    return [
        f"`{side}` does {rate:.2g} {unit}, more than {plural(count, kind)} can: work= is too large, or the call skips "
        "work that no output needs"
        for rate, unit, most in rates
        if rate is not None and kind in most and rate > count * most[kind]
    ]


@dataclass(frozen=True, slots=True)
class Traced:
    """Transfers of one call of ``parallel``, and warnings about both sides.

    ``transfers`` and ``transferred_bytes`` are ``None`` if the call could not be traced, or ran no op in this process.
    The bytes are those of transfers of known size.
    """

    transfers: int | None
    transferred_bytes: int | None
    warnings: tuple[str, ...]


def trace_both(single: Callable[[], Any], parallel: Callable[[], Any], devices: Sequence[Device]) -> Traced:
    """Trace one call of each side: of both, even if one cannot be traced, so that their states stay in step."""
    warnings: list[str] = []
    traces: list[Trace | None] = []
    for name, side in (("single", single), ("parallel", parallel)):
        with count_reads() as reads:
            try:
                traces.append(trace(side))
            except EvidenceError as error:
                warnings.append(f"`{name}` could not be traced, so its devices are unknown: {error}")
                traces.append(None)
        if reads.times:
            warnings.append(
                f"`{name}` reads a tensor {plural(reads.times, 'time')} per call in Python (numpy(), float(), if, "
                "print), and starts nothing on any device until it has the value"
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
        return ["the devices of the ops of `single` are unknown, so `single` may not be a single-device baseline"]
    if not on_own:
        listed = _listed(elsewhere)
        return [
            f"`single` ran only on devices that are not in devices= ({listed}), so it is not a baseline for devices="
        ]
    found = []
    if len(on_own) > 1:
        listed = _listed(on_own)
        found.append(f"`single` ran on {len(on_own)} of the devices ({listed}), so it is not a single-device baseline")
    if elsewhere:
        found.append(f"`single` also ran ops on devices that are not in devices= ({_listed(elsewhere)})")
    return found


def about_parallel(ops: Iterable[Op], devices: Sequence[Device]) -> list[str]:
    """Warn unless the parallel side uses each device, and at the same time."""
    ops = list(ops)
    if not ops:
        return ["`parallel` ran no op in this process, so its devices are unknown"]
    used = work_by_device(ops)
    idle = [device.parsed.short for device in devices if device.parsed not in used]
    found = []
    if idle:
        working = f"it uses only {len(devices) - len(idle)} of {plural(len(devices), 'device')}"
        found.append(f"`parallel` ran no op on {', '.join(idle)}: {working}")
    if len(devices) > 1 and all(device.kind == "logical-cpu" for device in devices):
        eager = work_by_device(op for op in ops if "/" not in op.name)
        in_turn = {name: count for name, count in eager.items() if name in {device.parsed for device in devices}}
        if len(in_turn) > 1:
            found.append(
                f"`parallel` runs ops one by one outside a tf.function ({_listed(in_turn)}): unless each device "
                "has its own Python thread, the devices take turns"
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
    amount = f"{size_mb:,.1f} MB between the host and the devices ({plural(len(copies), 'copy', 'copies')})"
    return [f"each call of `parallel` copies {amount}: keep constant data on the devices"]


def work_by_device(ops: Iterable[Op]) -> Counter[DeviceName]:
    """Count the ops on each device that do the work of a program."""
    return Counter(op.device for op in ops if op.device is not None and op.role in _WORK and op.type not in _ANYWHERE)


def _listed(counts: dict[DeviceName, int]) -> str:
    return ", ".join(f"{name.short}: {plural(count, 'op')}" for name, count in sorted(counts.items(), key=str))
