"""The page of a profile: what costs time, what each device did with it, and what its memory held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.html.charts.drawing import INK, MUTED, SERIES, Chart, add_legend, draw, legend_inches
from harness.report.html.environment import render
from harness.report.html.memory import memory_of
from harness.report.html.tables import Table, table
from harness.speed.timeline.record import COLUMNS, SPENT, DeviceTimes, Profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH_INCHES, _ROW_INCHES = 8.4, 0.4


def profile_page(profile: Profile) -> str:
    """Write a profile as one self-contained HTML file: what was found first, then the figures."""
    known = [times for times in profile.times if times.ops]
    return render(
        "profile.html.j2",
        title=profile.target,
        lines=profile.summary(),
        chart=_activity(profile, known) if known and profile.wall_ns else None,
        times=_times(profile),
        memory=memory_of(profile),
        memory_unknown=profile.memory_unknown,
    )


def _times(profile: Profile) -> Table:
    caption = f"Time of {profile.calls} calls by device, in ms"
    return table(caption, COLUMNS, [tuple(times.cells()) for times in profile.times], tuple(range(1, len(COLUMNS))))


def _activity(profile: Profile, known: list[DeviceTimes]) -> Chart:
    names = [times.cells()[0] for times in known]
    shares = {
        each: [getattr(times, f"{each}_ns") / profile.wall_ns for times in known]
        for each in SPENT
        if any(getattr(times, f"{each}_ns") for times in known)
    }

    def paint(axes: Axes) -> None:
        from matplotlib.ticker import PercentFormatter

        left = [0.0] * len(known)
        for number, (each, parts) in enumerate(shares.items()):
            axes.barh(range(len(known)), parts, left=left, color=SERIES[number % len(SERIES)], label=each, height=0.6)
            left = [start + part for start, part in zip(left, parts, strict=True)]
        axes.set_yticks(range(len(known)), names)
        axes.set_ylim(len(known) - 0.5, -0.5)
        axes.axvline(1.0, color=INK, linewidth=1.0)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_xlabel("share of the time of the calls; what overlaps counts in each", color=MUTED)
        add_legend(axes, len(shares))

    texts = [
        f"{name}: {', '.join(f'{each} {parts[row]:.1%}' for each, parts in shares.items())}"
        for row, name in enumerate(names)
    ]
    size = (_WIDTH_INCHES, 0.9 + legend_inches(len(shares)) + _ROW_INCHES * len(known))
    return draw("activity", "What each device spends the time on", "; ".join(texts), size, paint)
