"""Writes spans in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

The format is Google's "Trace Event Format": complete events (``"ph": "X"``) with ``ts`` and ``dur`` in µs, and metadata
events (``"ph": "M"``) that name processes and threads. Each device is a process here, each lane a thread of it: events
of one thread may not overlap.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.speed.timeline.spans import KINDS, Span

UNKNOWN_DEVICE = "UNKNOWN"


def chrome_trace(spans: Sequence[Span], calls: Sequence[tuple[int, int]], devices: Sequence[str]) -> dict[str, object]:
    """Make the trace as a JSON object. Its clock starts at the first call; ``devices`` come first."""
    origin_ns = min((begin for begin, _ in calls), default=0)
    others = sorted({span.device for span in spans if span.device is not None} - set(devices))
    unknown = [UNKNOWN_DEVICE] if any(span.device is None for span in spans) else []
    events: list[dict[str, object]] = [_named("process_name", 0, 0, "calls")]
    events += [
        _complete(f"call {number}", "call", 0, 0, begin - origin_ns, end - begin)
        for number, (begin, end) in enumerate(calls, start=1)
    ]
    for pid, device in enumerate((*devices, *others, *unknown), start=1):
        events.append(_named("process_name", pid, 0, device))
        own = [span for span in spans if (span.device or UNKNOWN_DEVICE) == device]
        first = 0
        for kind in KINDS:
            lanes = _lanes([span for span in own if span.kind == kind])
            for tid, lane in enumerate(lanes, start=first):
                events.append(_named("thread_name", pid, tid, kind))
                events += [
                    _complete(
                        span.name, kind, pid, tid, span.begin_ns - origin_ns, span.end_ns - span.begin_ns, span.eager
                    )
                    for span in lane
                ]
            first += len(lanes)
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


def _complete(
    name: str, category: str, pid: int, tid: int, begin_ns: int, duration_ns: int, eager: bool = False
) -> dict[str, object]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": pid,
        "tid": tid,
        "ts": begin_ns / 1e3,
        "dur": duration_ns / 1e3,
        "args": {"eager": eager},
    }
