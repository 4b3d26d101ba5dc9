"""Lines over time or over a number of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from harness.report.html.charts.drawing import MUTED, SERIES, Chart, add_legend, draw, legend_inches
from harness.report.html.charts.shares import MARKS
from harness.report.printable import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLES = ("-", "--", "-.", ":")
_LABEL_CHARACTERS = 24
#: Points drawn of one line: more would make the page heavy.
_MOST_POINTS = 400
#: Fewer points than this get a mark each.
_MARKED = 30


def lines_chart(
    name: str,
    title: str,
    description: str,
    lines: Mapping[str, tuple[Sequence[float], Sequence[float | None]]],
    x_label: str,
    y_label: str,
    *,
    counts: bool = False,
) -> Chart:
    """Draw a line for each label, with x and values; ``None`` is a gap. ``counts``: x are counts, values start at 0."""

    def paint(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        for index, (label, (x, values)) in enumerate(lines.items()):
            step = max(1, -(-len(x) // _MOST_POINTS))
            # A gap stays a gap, however few points are drawn.
            drawn = [at for at, value in enumerate(values) if at % step == 0 or value is None]
            gaps = any(value is None for value in values)
            axes.plot(
                [x[at] for at in drawn],
                [float("nan") if (value := values[at]) is None else value for at in drawn],
                color=SERIES[index % len(SERIES)],
                linestyle=_STYLES[index // 2 % len(_STYLES)],
                linewidth=1.8,
                # Between two gaps, a single point has no line.
                marker=MARKS[index % len(MARKS)] if len(x) < _MARKED else "." if gaps else None,
                markersize=4.5 if len(x) < _MARKED else 2.5,
                label=shortened(label, _LABEL_CHARACTERS),
            )
        axes.set_xlabel(shortened(x_label, _LABEL_CHARACTERS), color=MUTED)
        axes.set_ylabel(shortened(y_label, _LABEL_CHARACTERS), color=MUTED)
        axes.tick_params(axis="y", labelcolor=MUTED)
        axes.grid(axis="y")
        if counts:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_ylim(bottom=0)
        if len(lines) > 1:
            add_legend(axes, len(lines))

    legend = legend_inches(len(lines)) if len(lines) > 1 else 0.0
    return draw(name, title, description, (8.4, 2.5 + legend), paint)
