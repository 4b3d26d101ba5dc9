"""The memory over time that ``harness profile`` has left beside the run: a chart for each device, and the peaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.devices.name import DeviceName
from harness.report.html.charts.drawing import INK, MUTED, SERIES, Chart, add_legend, draw, legend_inches
from harness.report.html.tables import table
from harness.report.memory import peak_lines
from harness.report.quantities import NOTHING, count, percent
from harness.speed.memory.picture import kinds_of, paint_course
from harness.speed.memory.record import KINDS, Course
from harness.speed.memory.sizes import size_text
from harness.speed.timeline.record import Profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def memory_of(profile: Profile | None) -> dict[str, object] | None:
    """Make the section of a profile; ``None`` without one, or without memory in it."""
    if profile is None or not profile.memory:
        return None
    head = ("device", "at the peak", "share", "what", "layer", "line", "buffers")
    return {
        "summary": f"harness profile of {profile.target} on {profile.spec}, from profile.json in the folder of this "
        "run, which may be of a different time. For each device, the call with the highest peak is shown.",
        "charts": [_chart(index, course) for index, course in enumerate(profile.memory)],
        "table": table(
            "What is alive at the peaks", head, [row for course in profile.memory for row in _rows(course)], (1, 2, 6)
        ),
    }


def _chart(index: int, course: Course) -> object:
    title = f"Memory of {_short(course)} in call {course.call}"
    return areas_chart(f"memory-{index}", title, "; ".join(line.strip() for line in peak_lines([course])), course)


def _rows(course: Course) -> list[tuple[str, ...]]:
    return [
        (
            _short(course),
            size_text(each.size_bytes),
            percent(each.size_bytes / course.peak_bytes),
            each.kind,
            each.layer or NOTHING,
            each.line or NOTHING,
            count(each.buffers),
        )
        for each in course.alive
    ]


def _short(course: Course) -> str:
    return DeviceName.parse(course.device).short


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
