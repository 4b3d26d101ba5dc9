"""The memory of a device over time, as stacked areas with the peak marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.html.charts.drawing import INK, MUTED, SERIES, Chart, add_legend, draw, legend_inches
from harness.speed.memory.picture import kinds_of, paint_course
from harness.speed.memory.record import KINDS, Course

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def areas_chart(name: str, title: str, description: str, course: Course) -> Chart:
    """Draw what the device holds of each kind during a call."""
    colours = dict(zip(KINDS, (*SERIES[: len(KINDS) - 1], SERIES[-1]), strict=True))
    shown = kinds_of(course)

    def paint(axes: Axes) -> None:
        from matplotlib.patches import Patch

        paint_course(axes, course, colours, INK)
        axes.xaxis.label.set_color(MUTED)
        axes.tick_params(axis="y", labelcolor=MUTED)
        add_legend(axes, len(shown), [Patch(facecolor=colours[kind], label=kind) for kind in shown])

    return draw(name, title, description, (8.4, 2.5 + legend_inches(len(shown))), paint)
