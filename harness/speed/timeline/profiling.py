"""Profiles where the time of a program goes: what each device did, and how much overlapped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from statistics import median_low
from typing import Any

from harness._tensorflow import cluster_addresses, count_reads, count_traces
from harness.devices.device import Device
from harness.devices.name import DeviceName
from harness.evidence.build import build
from harness.evidence.recorder import record
from harness.lazy import tf
from harness.plural import plural
from harness.speed.memory.before import constants_in, held_before
from harness.speed.memory.course import courses_of
from harness.speed.memory.labels import Labels
from harness.speed.memory.origins import Origins
from harness.speed.synchronise import synchronise, warm_up
from harness.speed.timeline.capture import LOCAL_TASK, Captured, capture_calls
from harness.speed.timeline.causes import causes_of
from harness.speed.timeline.host import caller_of, host_times
from harness.speed.timeline.placements import Placements, placements_of
from harness.speed.timeline.planes import HostPlane, gpu_spans, transfers_between
from harness.speed.timeline.record import DeviceTimes, Profile
from harness.speed.timeline.spans import KINDS, Intervals, Kind, Span, at_least, intersect, length, subtract, union

_LOOPBACK = ("localhost", "127.")


@dataclass(frozen=True, slots=True)
class Profiled:
    """A profile, with the spans and the begin and end of each call, in ns since 1970."""

    profile: Profile
    spans: tuple[Span, ...]
    calls: tuple[tuple[int, int], ...]


def profile_calls(
    program: Callable[[], Any],
    *,
    devices: Sequence[Device],
    calls: int,
    folder: Path,
    target: str = "",
    spec: str = "",
    origins: Origins | None = None,
) -> Profiled:
    """Warm ``program`` up, record where its ops run, and run it ``calls`` times under TensorFlow's profiler.

    ``devices`` are those that it should use. ``folder`` is for the profiler's own files, which TensorBoard opens;
    ``target`` and ``spec`` are the names of the program and of the requested devices in the profile, ``origins`` what
    was noted while the program was loaded.

    Raises:
        EvidenceError: the program could not be recorded or profiled.
        TensorFlowInterfaceChanged: this TensorFlow is not supported.
        Exception: what ``program`` raises, unchanged.
    """
    names = [device.name for device in devices]
    origins = origins or Origins()
    with count_traces() as traces, origins.noted():
        warm_up(traces, program)
    with record() as recording:
        with count_reads() as reads:
            outputs = program()
        synchronise(outputs)
    trace = build(recording)
    placements = placements_of(recording, trace.ops)
    del outputs
    with count_traces() as traces:
        warm_up(traces, program)  # recording has emptied TensorFlow's caches
    tasks = sorted({_task(device.parsed) for device in devices} - {LOCAL_TASK})
    before = held_before(origins)
    captured = capture_calls(program, calls, folder, tasks)
    caller, made = caller_of(captured.local)
    constants = cache(partial(constants_in, recording.graphs, trace))
    labels = Labels(trace, before.layers)
    memory, unwatched = courses_of(captured.all, made, names, before, constants, labels, LOCAL_TASK)
    spans = [span for span in spans_of(captured, names, placements, made) if span.end_ns > made[0][0]]
    one_clock, unknown = _clocks(names)
    sums = account(spans, made, names, placements.roles, one_clock=one_clock)
    if sums.unattributed_ops:
        unknown.append(
            f"the device of {plural(sums.unattributed_ops, 'op')}, {sums.unattributed_ns / 1e6:.1f} ms in all: "
            "neither the profiler nor the names and order of ops show it; this time counts for no device"
        )
    profile = Profile(
        target=target,
        spec=spec,
        devices=tuple(names),
        calls=len(made),
        host=host_times(caller, made, sums.alone_ns, reads.times),
        unknown=tuple(unknown),
        memory=memory,
        memory_unknown=unwatched,
        independent_share=placements.independent_share,
        apart=placements.apart,
        **{field.name: getattr(sums, field.name) for field in fields(sums) if field.name != "alone_ns"},
    )
    return Profiled(replace(profile, causes=causes_of(profile)), tuple(spans), made)


def spans_of(
    captured: Captured, names: Sequence[str], placements: Placements, calls: Sequence[tuple[int, int]]
) -> list[Span]:
    """Collect the spans of all devices of all processes."""
    planes = {each.task: HostPlane(each, _cpus_of(each.task, names), placements) for each in captured.all}
    spans = []
    for task, plane in planes.items():
        spans += plane.spans(calls if task == LOCAL_TASK else ())
    spans += [span for each in captured.all for span in gpu_spans(each)]
    return spans + transfers_between(planes)


def _task(name: DeviceName) -> str:
    return str(DeviceName(name.job or "localhost", name.replica or 0, name.task or 0))


def _cpus_of(task: str, names: Sequence[str]) -> list[str]:
    logical = [DeviceName.parse(device.name) for device in tf.config.list_logical_devices()]
    found = [f"{task}/device:{name.kind}:{name.index}" for name in logical if _task(name) == task]
    return found or [name for name in names if _task(DeviceName.parse(name)) == task]


def _clocks(names: Sequence[str]) -> tuple[bool, list[str]]:
    """Whether all devices are on one machine, so that their times can be compared; if not, with a sentence."""
    addresses = cluster_addresses()
    tasks = {_task(DeviceName.parse(name)) for name in names} - {LOCAL_TASK}
    away = sorted({addresses[task] for task in tasks if not addresses.get(task, "localhost").startswith(_LOOPBACK)})
    if not away:
        return True, []
    listed = ", ".join(away)
    return False, [f"the overlap of devices: the clock of {listed} differs from this host's"]


@dataclass(frozen=True, slots=True)
class TimeAccount:
    """The figures of :class:`harness.speed.timeline.record.Profile` that follow from spans."""

    wall_ns: int
    times: tuple[DeviceTimes, ...]
    alone_ns: int
    overlap_share: float | None
    possible_overlap_share: float | None
    unattributed_ns: int
    unattributed_ops: int
    unattributed_overlap_ns: int
    unattributed_eager_ops: int


def account(
    spans: Sequence[Span],
    calls: Sequence[tuple[int, int]],
    devices: Sequence[str],
    roles: Mapping[str, Mapping[str, int]] | None = None,
    *,
    one_clock: bool = True,
) -> TimeAccount:
    """Add up the spans inside ``calls``, pairs of ns.

    ``devices`` are the full names of the requested ones; other active devices get a row too. ``roles`` has the counts
    of ``forward`` and ``gradient`` ops by device, ``one_clock`` says whether the times of all devices can be compared.
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
        # On a busy machine, an op of some calls waits long for a core.
        computed = [length(intersect(kinds["compute"], [call])) for call in calls] or [0]
        times.append(
            DeviceTimes(
                device=device,
                listed=device in devices,
                **{f"{kind}_ns": length(kinds[kind]) for kind in KINDS},
                typical_compute_ns=median_low(computed) * len(calls),
                least_compute_ns=min(computed) * len(calls),
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
    one_by_one_ns = sum(length(intersect([(span.begin_ns, span.end_ns)], window)) for span in unknown)
    return TimeAccount(
        wall_ns=wall_ns,
        times=tuple(times),
        alone_ns=wall_ns - length(any_busy),
        overlap_share=length(at_least(compute, 2)) / wall_ns if comparable else None,
        possible_overlap_share=possible_overlap(compute) / wall_ns if comparable else None,
        unattributed_ns=length(busy.get(None, [])),
        unattributed_ops=len(unknown),
        unattributed_overlap_ns=one_by_one_ns - length(busy.get(None, [])),
        unattributed_eager_ops=sum(span.eager for span in unknown),
    )


def possible_overlap(compute: Sequence[Intervals]) -> float:
    """Compute how long, in ns, two or more devices could compute at once at most.

    The busiest device overlaps at most with all others together, and at best two devices compute at each instant.
    """
    lengths = [length(each) for each in compute]
    return min(sum(lengths) - max(lengths, default=0), sum(lengths) / 2)


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
