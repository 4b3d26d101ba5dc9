"""Computes the figures of a profile from spans: what each device did, and how much overlapped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.speed.timeline.intervals import Intervals, at_least, intersect, length, subtract, union
from harness.speed.timeline.record import DeviceTimes
from harness.speed.timeline.spans import KINDS, Kind, Span


@dataclass(frozen=True, slots=True)
class Account:
    """The figures of :class:`harness.speed.timeline.record.Profile` that follow from spans."""

    wall_ns: int
    times: tuple[DeviceTimes, ...]
    alone_ns: int
    overlap_share: float | None
    possible_overlap_share: float | None
    unattributed_ns: int
    unattributed_ops: int


def account(
    spans: Sequence[Span],
    calls: Sequence[tuple[int, int]],
    devices: Sequence[str],
    roles: Mapping[str, Mapping[str, int]] | None = None,
    *,
    one_clock: bool = True,
) -> Account:
    """Add up the spans inside ``calls``, pairs of ns.

    Args:
        spans: the ops, kernels and copies.
        calls: when each call began and ended.
        devices: full names of the requested devices. Other active devices get a row too.
        roles: counts of ``forward`` and ``gradient`` ops by device.
        one_clock: whether the times of all devices can be compared.
    """
    window = union(calls)
    wall_ns = length(window)
    done = _by_device(spans, window)
    others = sorted(device for device in done if device is not None and device not in devices)
    busy = {device: union(part for kind in KINDS for part in kinds[kind]) for device, kinds in done.items()}
    any_busy = union(part for parts in busy.values() for part in parts)
    times = []
    for device in (*devices, *others):
        kinds = done.get(device, {kind: [] for kind in KINDS})
        own = busy.get(device, [])
        idle = subtract(window, own)
        waiting_ns = length(intersect(idle, any_busy))
        on_it = [span for span in spans if span.device == device and _inside(span, window)]
        counts = (roles or {}).get(device, {})
        times.append(
            DeviceTimes(
                device=device,
                listed=device in devices,
                compute_ns=length(kinds["compute"]),
                transfer_ns=length(kinds["transfer"]),
                collective_ns=length(kinds["collective"]),
                input_ns=length(kinds["input"]),
                busy_ns=length(own),
                host_ns=length(idle) - waiting_ns,
                waiting_ns=waiting_ns,
                idle_share=length(idle) / wall_ns if wall_ns else 0.0,
                ops=len(on_it),
                eager_ops=sum(span.eager for span in on_it),
                forward_ops=counts.get("forward", 0),
                gradient_ops=counts.get("gradient", 0),
            )
        )
    compute = [done[device]["compute"] for device in devices if device in done]
    comparable = len(devices) > 1 and one_clock and wall_ns > 0
    unknown = [span for span in spans if span.device is None and _inside(span, window)]
    return Account(
        wall_ns=wall_ns,
        times=tuple(times),
        alone_ns=wall_ns - length(any_busy),
        overlap_share=length(at_least(compute, 2)) / wall_ns if comparable else None,
        possible_overlap_share=possible_overlap(compute) / wall_ns if comparable else None,
        unattributed_ns=length(busy.get(None, [])),
        unattributed_ops=len(unknown),
    )


def possible_overlap(compute: Sequence[Intervals]) -> float:
    """Compute how long, in ns, two or more devices could compute at once at most.

    The busiest device overlaps at most with all others together, and at best two devices compute at each instant.
    """
    lengths = [length(each) for each in compute]
    if not lengths:
        return 0.0
    return min(sum(lengths) - max(lengths), sum(lengths) / 2)


def _inside(span: Span, window: Intervals) -> bool:
    return any(span.begin_ns < end and begin < span.end_ns for begin, end in window)


def _by_device(spans: Sequence[Span], window: Intervals) -> dict[str | None, dict[Kind, Intervals]]:
    parts: dict[str | None, dict[Kind, list[tuple[int, int]]]] = {}
    for span in spans:
        if _inside(span, window):
            kinds = parts.setdefault(span.device, {kind: [] for kind in KINDS})
            kinds[span.kind].append((span.begin_ns, span.end_ns))
    return {
        device: {kind: intersect(union(each), window) for kind, each in kinds.items()}
        for device, kinds in parts.items()
    }
