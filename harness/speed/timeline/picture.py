"""Draws the timeline: a row for each device, coloured by activity."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.devices.name import DeviceName
from harness.plural import plural
from harness.speed.timeline.record import Profile
from harness.speed.timeline.spans import KINDS, Intervals, Kind, Span, union

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Okabe and Ito's colours, for every kind of colour vision (jfly.uni-koeln.de/color, 2008).
_COLOURS: dict[Kind, str] = {
    "compute": "#0072B2",
    "transfer": "#D55E00",
    "collective": "#CC79A7",
    "input": "#E69F00",
}
#: Most calls drawn: more would be too thin to read.
_CALLS_DRAWN = 3
#: Gaps below this share of the width are less than a pixel.
_PIXEL = 1 / 2000
_ROW_INCHES, _WIDTH_INCHES = 0.55, 11.0
_ROW_FILLED = 0.72


def draw_timeline(
    profile: Profile, spans: Sequence[Span], calls: Sequence[tuple[int, int]], paths: Sequence[Path]
) -> None:
    """Draw the first calls to ``paths`` (.png, .svg …). Raise OSError if a path cannot be written."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    drawn = sorted(calls)[:_CALLS_DRAWN]
    begin_ns, end_ns = drawn[0][0], drawn[-1][1]
    rows: dict[str | None, str] = {
        times.device: f"{DeviceName.parse(times.device).short}\nidle {times.idle_share:.0%}" for times in profile.times
    }
    if any(span.device is None for span in spans):
        rows[None] = "UNKNOWN"
    figure = Figure(figsize=(_WIDTH_INCHES, 1.7 + _ROW_INCHES * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for number, (begin, end) in enumerate(drawn, start=1):
        axes.axvline((begin - begin_ns) / 1e6, color="0.6", linewidth=0.8, zorder=1)
        axes.axvspan((begin - begin_ns) / 1e6, (end - begin_ns) / 1e6, color="0.93", zorder=0)
        axes.annotate(
            f"call {number}",
            ((begin - begin_ns) / 1e6, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(2, 3),
            textcoords="offset points",
            fontsize="small",
            color="0.35",
        )
    for row, device in enumerate(rows):
        _draw_row(axes, row, [span for span in spans if span.device == device], begin_ns, end_ns)
    axes.set_yticks(range(len(rows)), list(rows.values()))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, (end_ns - begin_ns) / 1e6)
    axes.set_xlabel("ms since the first call")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(_title(profile, len(drawn)), loc="left", fontsize="medium", pad=18)
    handles = [Patch(color=_COLOURS[kind], label=kind) for kind in KINDS]
    figure.legend(handles=handles, loc="outside lower right", ncols=len(KINDS), frameon=False, fontsize="small")
    for path in paths:
        figure.savefig(path, dpi=150)


def _draw_row(axes: Axes, row: int, spans: Sequence[Span], begin_ns: int, end_ns: int) -> None:
    for kind in KINDS:
        parts = union(
            (max(span.begin_ns, begin_ns), min(span.end_ns, end_ns))
            for span in spans
            if span.kind == kind and span.end_ns > begin_ns and span.begin_ns < end_ns
        )
        bars = [((begin - begin_ns) / 1e6, (end - begin) / 1e6) for begin, end in _closed(parts, end_ns - begin_ns)]
        axes.broken_barh(bars, (row - _ROW_FILLED / 2, _ROW_FILLED), facecolors=_COLOURS[kind], linewidth=0, zorder=2)


def _closed(parts: Intervals, width_ns: int) -> Intervals:
    least_ns = int(width_ns * _PIXEL)
    return [(begin, end - least_ns) for begin, end in union((begin, end + least_ns) for begin, end in parts)]


def _title(profile: Profile, drawn: int) -> str:
    calls = f"{drawn} of {profile.calls} calls" if drawn < profile.calls else f"{plural(profile.calls, 'call')}"
    share = profile.overlap_share
    overlap = "" if share is None else f"; two or more devices compute at once {share:.0%} of the time"
    return f"{profile.target} on {profile.spec}, {calls}{overlap}"
