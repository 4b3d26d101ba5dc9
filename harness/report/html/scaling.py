"""The scaling curve that ``harness scale`` has left beside the run: its chart, its table, and what it is of."""

from __future__ import annotations

from harness.plural import plural
from harness.records import Fingerprint, RunRecord
from harness.report.html.charts.drawing import Chart
from harness.report.html.charts.lines import lines_chart
from harness.report.html.tables import table
from harness.report.quantities import NOTHING, number, percent
from harness.report.scale import vague_points
from harness.speed.record import Interval
from harness.speed.scaling.curve import is_vague
from harness.speed.scaling.picture import law_text
from harness.speed.scaling.record import ScaleRecord


def scaling_of(record: RunRecord, scale: ScaleRecord | None) -> dict[str, object] | None:
    """Make the section of the curve ``scale`` in the report of ``record``; ``None`` without one.

    ``caveats`` are what has to be known before it is believed.
    """
    if scale is None:
        return None
    kind = "the same work on more devices" if scale.mode == "strong" else "work that grows with the number of devices"
    head = ("devices", "time", "speedup", "efficiency", "what they are")
    return {
        "summary": f"harness scale, {scale.mode} scaling of {scale.target}: {kind}. {law_text(scale)}.",
        "caveats": _caveats(record, scale),
        "chart": _chart(scale),
        "table": table("Each device set", head, _rows(scale), (1, 2, 3)),
    }


def _caveats(record: RunRecord, scale: ScaleRecord) -> list[str]:
    caveats = [
        "The curve is from scale.json in the folder of this run, and may have been measured at a different time."
    ]
    if not scale.complete:
        caveats.append("The curve is incomplete: the measurement ended early.")
    if record.described:
        caveats.append("The run is of a described machine; the curve is of real hardware.")
    elif _hardware(record.fingerprint) != _hardware(scale.fingerprint):
        caveats.append("The curve was measured on hardware or software that differs from the run's or is unknown.")
    caveats += [f"{point.spec}: {point.error}" for point in scale.points if point.error is not None]
    return caveats + vague_points(scale)


def _hardware(facts: Fingerprint | None) -> tuple[object, ...] | None:
    return None if facts is None else (facts.cpu_model, facts.gpus, facts.tensorflow, facts.driver)


def _chart(scale: ScaleRecord) -> Chart | None:
    points = sorted(
        (p.devices, p.speedup, "cannot tell" if is_vague(p.speedup_interval) else f"{number(p.speedup)} times as fast")
        for p in scale.points
        if p.devices is not None and p.speedup is not None
    )
    if len(points) < 2:
        return None
    counts, speedups = [float(devices) for devices, _, _ in points], [speedup for _, speedup, _ in points]
    lines = {"measured": (counts, speedups), "ideal": (counts, [each / counts[0] for each in counts])}
    description = "; ".join(f"{plural(devices, 'device')}: {said}" for devices, _, said in points) + "."
    title = f"Scaling of {scale.target}"
    return lines_chart("scaling-chart", title, description, lines, "devices", "times as fast", counts=True)


def _rows(scale: ScaleRecord) -> list[tuple[str, ...]]:
    return [
        (
            point.spec,
            NOTHING if point.time_ns is None else f"{number(point.time_ns / 1e6)} ms",
            _with_interval(point.speedup, point.speedup_interval),
            "cannot tell" if is_vague(point.speedup_interval) else percent(point.efficiency),
            point.error or point.label or NOTHING,
        )
        for point in scale.points
    ]


def _with_interval(value: float | None, interval: Interval | None) -> str:
    if value is None or interval is None:
        return number(value)
    return f"{number(value)} ({number(interval.lower)} to {number(interval.upper)})"
