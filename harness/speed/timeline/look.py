"""``profile_calls``: profiles where the time of a program goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness._tensorflow import cluster_addresses, count_reads, count_traces
from harness.devices.device import Device
from harness.devices.name import DeviceName
from harness.evidence.recorder import record
from harness.plural import plural
from harness.speed.settle import settle, warm_up
from harness.speed.timeline.account import account
from harness.speed.timeline.capture import LOCAL_TASK, Captured, capture_calls
from harness.speed.timeline.causes import causes_of
from harness.speed.timeline.gpu_plane import gpu_spans
from harness.speed.timeline.host import HostEvents, host_events
from harness.speed.timeline.host_plane import HostPlane, transfers_between
from harness.speed.timeline.intervals import length
from harness.speed.timeline.placements import Placements, placements_of
from harness.speed.timeline.record import HostTimes, Profile
from harness.speed.timeline.spans import Span

_LOOPBACK = ("localhost", "127.")


@dataclass(frozen=True, slots=True)
class Looked:
    """A profile, with the spans and the begin and end of each call, in ns since 1970."""

    profile: Profile
    spans: tuple[Span, ...]
    calls: tuple[tuple[int, int], ...]


def profile_calls(
    program: Callable[[], Any], *, devices: Sequence[Device], calls: int, folder: Path, target: str = "", spec: str = ""
) -> Looked:
    """Warm ``program`` up, record where its ops run, and run it ``calls`` times under TensorFlow's profiler.

    Args:
        program: callable without arguments.
        devices: the devices that it should use.
        calls: how many calls are profiled.
        folder: for the profiler's own files, which TensorBoard opens.
        target: the name of the program in the profile.
        spec: the requested device spec.

    Raises:
        EvidenceError: the program could not be recorded or profiled.
        TensorFlowInterfaceChanged: this TensorFlow is not supported.
        Whatever ``program`` raises, as it is.
    """
    names = [device.name for device in devices]
    with count_traces() as traces:
        warm_up(traces, program)
    with record() as recording:
        with count_reads() as reads:
            outputs = program()
        in_program = reads.times
        settle(outputs)
    placements = placements_of(recording)
    with count_traces() as traces:
        warm_up(traces, program)  # recording has emptied TensorFlow's caches
    tasks = sorted({_task(device.parsed) for device in devices} - {LOCAL_TASK})
    captured = capture_calls(program, calls, folder, tasks)
    events = host_events(captured.local)
    spans = spans_of(captured, names, placements, events.calls)
    return Looked(_profile(spans, events, names, placements, in_program, target, spec), tuple(spans), events.calls)


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


def _profile(
    spans: Sequence[Span],
    events: HostEvents,
    names: Sequence[str],
    placements: Placements,
    reads: int,
    target: str,
    spec: str,
) -> Profile:
    one_clock, doubts = _clocks(names)
    sums = account(spans, events.calls, names, placements.roles, one_clock=one_clock)
    if sums.unattributed_ops:
        doubts.append(
            f"the device of {plural(sums.unattributed_ops, 'op')}, {sums.unattributed_ns / 1e6:.1f} "
            "ms in all, is UNKNOWN: "
            "neither "
            "the profiler nor their names and order show it; they count for no device"
        )
    host = HostTimes(
        alone_ns=sums.alone_ns,
        input_ns=length(events.input),
        tracing_ns=length(events.tracing),
        convert_ns=length(events.convert),
        calls_traced=events.calls_traced,
        traced=events.traced,
        reads=reads * len(events.calls),
    )
    profile = Profile(
        target=target,
        spec=spec,
        devices=tuple(names),
        calls=len(events.calls),
        wall_ns=sums.wall_ns,
        times=sums.times,
        host=host,
        overlap_share=sums.overlap_share,
        possible_overlap_share=sums.possible_overlap_share,
        unattributed_ns=sums.unattributed_ns,
        unattributed_ops=sums.unattributed_ops,
        unknown=tuple(doubts),
        independent_share=placements.independent_share,
    )
    return replace(profile, causes=causes_of(profile))


def _task(name: DeviceName) -> str:
    return str(DeviceName(name.job or "localhost", name.replica or 0, name.task or 0))


def _cpus_of(task: str, names: Sequence[str]) -> list[str]:
    """List all CPU devices of a process."""
    import tensorflow as tf

    found = []
    for device in tf.config.list_logical_devices():
        name = DeviceName.parse(device.name)
        if _task(name) == task:
            found.append(f"{task}/device:{name.kind}:{name.index}")
    return found or [name for name in names if _task(DeviceName.parse(name)) == task]


def _clocks(names: Sequence[str]) -> tuple[bool, list[str]]:
    """Whether all devices are on one machine, so that their times can be compared; if not, with a sentence."""
    addresses = cluster_addresses()
    away = sorted(
        {
            addresses[task]
            for task in (_task(DeviceName.parse(name)) for name in names)
            if task in addresses and task != LOCAL_TASK and not addresses[task].startswith(_LOOPBACK)
        }
    )
    if not away:
        return True, []
    return False, [f"the overlap of devices is UNKNOWN: {', '.join(away)} has its own clock"]
