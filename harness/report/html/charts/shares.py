"""Rates as shares of the expected values: a row for each figure, a mark for each device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from harness.report.html.charts.drawing import GROUND, INK, MUTED, SERIES, Chart, add_legend, draw, legend_inches
from harness.report.printable import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Marks that differ in form, too: colour is never the only sign.
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LABEL_CHARACTERS = 30
_ROW_INCHES, _WIDTH_INCHES = 0.34, 8.4


def shares_chart(
    name: str, title: str, description: str, rows: Mapping[str, Sequence[tuple[str, float]]], devices: Sequence[str]
) -> Chart:
    """Draw, for each figure, the share of the expected value that each device reached (1 is all)."""

    def paint(axes: Axes) -> None:
        from matplotlib.ticker import PercentFormatter

        for index, device in enumerate(devices):
            points = [
                (share, row) for row, marks in enumerate(rows.values()) for label, share in marks if label == device
            ]
            if points:
                axes.plot(
                    [share for share, _ in points],
                    [row for _, row in points],
                    MARKS[index % len(MARKS)],
                    color=SERIES[index % len(SERIES)],
                    markeredgecolor=GROUND,
                    markeredgewidth=0.6,
                    markersize=7,
                    label=shortened(device, _LABEL_CHARACTERS),
                )
        axes.axvline(1.0, color=INK, linewidth=1.2)
        axes.set_yticks(range(len(rows)), [shortened(each, _LABEL_CHARACTERS) for each in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        most = max((share for marks in rows.values() for _, share in marks), default=1.0)
        axes.set_xlim(0, max(1.1, most * 1.08))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.grid(axis="both")
        axes.tick_params(length=0)
        axes.set_xlabel("share of the expected value", color=MUTED)
        if len(devices) > 1:
            add_legend(axes, len(devices))

    legend = legend_inches(len(devices)) if len(devices) > 1 else 0.0
    return draw(name, title, description, (_WIDTH_INCHES, 0.9 + legend + _ROW_INCHES * len(rows)), paint)
