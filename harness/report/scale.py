"""Prints a scaling curve and stores it as ``scale.json``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.report.storage import load_versioned
from harness.report.terminal import make_table, print_line
from harness.speed.record import Interval
from harness.speed.scaling.curve import is_vague
from harness.speed.scaling.picture import law_text
from harness.speed.scaling.record import SCALE_SCHEMA_VERSION, Point, ScaleRecord

if TYPE_CHECKING:
    from rich.console import Console

#: Names of the record and of the picture in the report folder.
SCALE_FILE = "scale.json"
SCALE_PICTURE = "scale.png"


def load_scale(path: Path) -> ScaleRecord:
    """Read the record at ``path``, which may be the report folder.

    Raise InvalidRecord if there is no such file, or it is not a record of this version or an earlier one.
    """
    return load_versioned(path / SCALE_FILE if path.is_dir() else path, ScaleRecord, SCALE_SCHEMA_VERSION)


def print_scale(console: Console, record: ScaleRecord) -> None:
    """Print a row for each device set, then notes, errors and the fitted law."""
    numbers = ("rounds", "calls", "time", "speedup", "efficiency")
    head = ("devices", *numbers, "what they are")
    console.print(make_table(head, map(_cells, record.points), right=numbers, long=head[-1:]))
    for line in summary(record):
        print_line(console, line)


def summary(record: ScaleRecord) -> list[str]:
    """Write what the table leaves out, a line each."""
    lines = [f"error: {point.spec}: {point.error}" for point in record.points if point.error is not None]
    unfaithful = [point.spec for point in record.points if point.faithful is False]
    if unfaithful:
        lines.append(f"{', '.join(unfaithful)}: not representative of speed, see the last column")
    if any(point.rounds and point.time_interval_ns is None for point in record.points):
        lines.append("one round gives no interval: use --rounds 2 or more")
    lines += vague_points(record)
    if record.outputs is not None:
        lines.append(record.outputs)
    rest = "" if record.complete else "; INTERRUPTED: the curve is incomplete"
    lines.append(f"{record.target}, {record.mode} scaling: {law_text(record)}{rest}")
    return lines


def vague_points(record: ScaleRecord) -> list[str]:
    """Write a line for each device set whose interval tells no gain from a loss."""
    return [
        f"{point.spec}: cannot tell a gain from a loss: use more --rounds or a longer --budget"
        for point in record.points
        if is_vague(point.speedup_interval)
    ]


def _cells(point: Point) -> list[str]:
    if point.time_ns is None:
        return [point.spec, "0", "0", "", "", "", "failed" if point.error is not None else "not measured"]
    return [
        point.spec,
        str(len(point.rounds)),
        str(sum(len(each.times_ns) for each in point.rounds)),
        _with_interval(point.time_ns / 1e6, point.time_interval_ns, 1e6, " ms"),
        "" if point.speedup is None else _with_interval(point.speedup, point.speedup_interval),
        "" if point.efficiency is None else "?" if is_vague(point.speedup_interval) else f"{point.efficiency:.1%}",
        point.label or "",
    ]


def _with_interval(value: float, interval: Interval | None, unit: float = 1.0, suffix: str = "") -> str:
    if interval is None:
        return f"{value:.2f}{suffix}"
    return f"{value:.2f}{suffix} ({interval.lower / unit:.2f} to {interval.upper / unit:.2f})"
