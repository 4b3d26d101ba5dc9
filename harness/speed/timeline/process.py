"""The task of a worker process that profiles a user's function and writes its timeline.

One form is Chrome's "Trace Event Format", which Perfetto (ui.perfetto.dev) and chrome://tracing open: complete events
(``"ph": "X"``) with ``ts`` and ``dur`` in µs, and metadata events (``"ph": "M"``) that name processes and threads. Each
device is a process, each lane a thread of it, because events of one thread may not overlap.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.errors import ReportError
from harness.runner.job import typed_task
from harness.runner.messages import Answer
from harness.runner.target import Target
from harness.runner.users_error import users_code
from harness.runner.worker import Send
from harness.speed.memory.picture import draw_memory
from harness.speed.timeline.picture import draw_timeline
from harness.speed.timeline.spans import KINDS, Span

#: Written to the report folder.
TENSORBOARD_FOLDER = "tensorboard"
TRACE_FILE = "timeline.json"
PICTURE_FILES = ("timeline.png", "timeline.svg")
MEMORY_FILES = ("memory.png", "memory.svg")
UNKNOWN_DEVICE = "UNKNOWN"


@typed_task
def run(send: Send, spec: str, file: Path, function: str, calls: int, folder: Path) -> None:
    """Profile calls of the function on the devices of ``spec``, and write the timeline to ``folder`` in three forms."""
    from harness.devices.fingerprint import fingerprint
    from harness.devices.runtime import configure
    from harness.speed.memory.origins import Origins
    from harness.speed.timeline.profiling import profile_calls

    target = Target(file, function)
    devices = configure(spec)
    with users_code(target):
        origins = Origins()
        with origins.noted():
            program, tensorboard = target.load(), folder / TENSORBOARD_FOLDER
        profiled = profile_calls(
            program,
            devices=devices,
            calls=calls,
            folder=tensorboard,
            target=str(target),
            spec=spec,
            origins=origins,
        )
    profile = replace(profiled.profile, reason=devices.reason, fingerprint=fingerprint(devices))
    try:
        trace = chrome_trace(profiled.spans, profiled.calls, profile.devices)
        (folder / TRACE_FILE).write_text(json.dumps(trace), encoding="utf-8")
        draw_timeline(profile, profiled.spans, profiled.calls, [folder / name for name in PICTURE_FILES])
        draw_memory(profile.target, profile.memory, [folder / name for name in MEMORY_FILES])
    except OSError as error:
        raise ReportError(folder, error.strerror or str(error)) from error
    send(Answer({"profile": profile}))


def chrome_trace(spans: Sequence[Span], calls: Sequence[tuple[int, int]], devices: Sequence[str]) -> dict[str, object]:
    """Make the trace as a JSON object. Its clock starts at the first call; ``devices`` come first."""
    origin_ns = min((begin for begin, _ in calls), default=0)
    others = sorted({span.device for span in spans if span.device is not None} - set(devices))
    unknown = [UNKNOWN_DEVICE] if any(span.device is None for span in spans) else []
    events: list[dict[str, object]] = [_named("process_name", 0, 0, "calls")]
    for number, (begin, end) in enumerate(calls, start=1):
        events.append(_complete(Span(None, "compute", f"call {number}", begin, end), "call", 0, 0, origin_ns))
    for pid, device in enumerate((*devices, *others, *unknown), start=1):
        events.append(_named("process_name", pid, 0, device))
        own = [span for span in spans if (span.device or UNKNOWN_DEVICE) == device]
        lanes = [(kind, lane) for kind in KINDS for lane in _lanes([span for span in own if span.kind == kind])]
        for tid, (kind, lane) in enumerate(lanes):
            events.append(_named("thread_name", pid, tid, kind))
            events += [_complete(span, kind, pid, tid, origin_ns) for span in lane]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _lanes(spans: Sequence[Span]) -> list[list[Span]]:
    """Distribute the spans to as few lanes as possible, so that none overlap in a lane."""
    lanes: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: (span.begin_ns, span.end_ns)):
        lane = next((lane for lane in lanes if lane[-1].end_ns <= span.begin_ns), None)
        if lane is None:
            lanes.append([span])
        else:
            lane.append(span)
    return lanes


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, object]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _complete(span: Span, category: str, pid: int, tid: int, origin_ns: int) -> dict[str, object]:
    times = {"ts": (span.begin_ns - origin_ns) / 1e3, "dur": (span.end_ns - span.begin_ns) / 1e3}
    event = {"ph": "X", "name": span.name, "cat": category, "pid": pid, "tid": tid}
    return {**event, **times, "args": {"eager": span.eager}}
