"""The timeline as a trace for Perfetto and as a picture; and how calls are timed for a scaling curve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.speed.timeline.picture import draw_timeline
from harness.speed.timeline.process import chrome_trace
from harness.speed.timeline.spans import Span
from profiles import CPU, profile

ZERO, ONE = CPU.format(0), CPU.format(1)
MS = 1_000_000
CALLS = [(5 * MS, 15 * MS), (16 * MS, 26 * MS)]
SPANS = [
    Span(ZERO, "compute", "MatMul", 6 * MS, 9 * MS),
    Span(ZERO, "compute", "MatMul_1", 8 * MS, 10 * MS),
    Span(ZERO, "compute", "Tanh", 9 * MS, 11 * MS),
    Span(ONE, "transfer", "x/_2", 7 * MS, 8 * MS, eager=True),
    Span(None, "compute", "Relu", 17 * MS, 18 * MS),
]


def events(kind: str) -> list[dict[str, Any]]:
    trace = chrome_trace(SPANS, CALLS, [ZERO, ONE])
    assert trace["displayTimeUnit"] == "ms"
    made = trace["traceEvents"]
    assert isinstance(made, list)
    return [event for event in made if event["ph"] == kind]


def test_every_span_and_call_is_in_the_trace_in_microseconds_since_the_first_call() -> None:
    complete = {event["name"]: event for event in events("X")}
    assert set(complete) == {"call 1", "call 2", *(span.name for span in SPANS)}
    assert (complete["MatMul"]["ts"], complete["MatMul"]["dur"]) == (1000.0, 3000.0)
    assert complete["x/_2"]["args"] == {"eager": True}
    assert complete["x/_2"]["cat"] == "transfer"


def test_each_device_is_a_process_and_what_has_none_is_called_unknown() -> None:
    names = {event["pid"]: event["args"]["name"] for event in events("M") if event["name"] == "process_name"}
    assert list(names.values()) == ["calls", ZERO, ONE, "UNKNOWN"]
    by_name = {event["name"]: names[event["pid"]] for event in events("X")}
    assert (by_name["MatMul"], by_name["x/_2"], by_name["Relu"]) == (ZERO, ONE, "UNKNOWN")


def test_no_two_events_of_one_thread_overlap() -> None:
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events("X"):
        lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    assert max(len(lane) for lane in lanes.values()) >= 2
    for lane in lanes.values():
        ordered = sorted(lane)
        assert all(before[1] <= after[0] for before, after in zip(ordered, ordered[1:], strict=False))  # noqa: RUF007


def test_the_picture_shows_each_kind_in_its_colour(tmp_path: Path) -> None:
    from matplotlib.image import imread

    paths = [tmp_path / "timeline.png", tmp_path / "timeline.svg"]
    draw_timeline(profile(), SPANS, CALLS, paths)
    pixels = (imread(paths[0])[:, :, :3] * 255).round().astype(int)
    counts: dict[tuple[int, ...], int] = {}
    for row in pixels:
        for pixel in row.tolist():
            counts[tuple(pixel)] = counts.get(tuple(pixel), 0) + 1
    compute, transfer = counts[0, 114, 178], counts[213, 94, 0]
    # Three times 2 ms of compute and a legend's patch against one ms of transfer and a patch: more than twice as much.
    assert compute > 2 * transfer > 0
    text = paths[1].read_text()
    assert text.lstrip().startswith("<?xml")
    assert "<svg" in text


def test_a_picture_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="absent"):
        draw_timeline(profile(), SPANS, CALLS, [tmp_path / "absent" / "timeline.png"])
