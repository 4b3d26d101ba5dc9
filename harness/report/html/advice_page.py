"""The page of an advice: the recommendation, the speedup of each way with its interval, and the scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.advice.record import BASELINE, Advice, Way
from harness.report.advice import said
from harness.report.html.charts.drawing import INK, MUTED, SERIES, Chart, draw
from harness.report.html.environment import render
from harness.report.html.tables import table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH_INCHES, _ROW_INCHES = 8.4, 0.42


def advice_page(advice: Advice) -> str:
    """Write an advice as one self-contained HTML file."""
    timed = [way for way in advice.ways if way.speedup is not None]
    rows = [tuple(cell.replace("\n", " ") for cell in way.cells) for way in advice.ways]
    return render(
        "advice.html.j2",
        advice=advice,
        chart=_speedups(timed, bool(advice.cards)) if timed else None,
        ways=table("Ways that were tried", advice.head, rows, (2, 3, 5)),
        found=[(way.name, text) for way in advice.ways if (text := said(way))],
        scripts=[way for way in advice.ways if way.code and way.is_right and way.name != BASELINE],
    )


def _speedups(timed: list[Way], predicted: bool) -> Chart:
    values = [(way.speedup.value, way.speedup.lower, way.speedup.upper) for way in timed if way.speedup is not None]

    def paint(axes: Axes) -> None:
        places = range(len(timed))
        middle = [value for value, _, _ in values]
        error = [[value - lower for value, lower, _ in values], [upper - value for value, _, upper in values]]
        axes.barh(places, middle, color=SERIES[0], height=0.5)
        axes.errorbar(middle, places, xerr=error, fmt="none", ecolor=INK, capsize=4, linewidth=1.2)
        axes.axvline(1.0, color=INK, linewidth=1.0, linestyle="--")
        axes.set_yticks(places, [way.name for way in timed])
        axes.set_ylim(len(timed) - 0.5, -0.5)
        axes.set_xlim(left=0.0)
        label = (
            "predicted speedup over one device, with its interval"
            if predicted
            else "speedup over one device, with its 95 % interval"
        )
        axes.set_xlabel(label, color=MUTED)

    texts = [
        f"{way.name}: {value:.2f} ({lower:.2f} to {upper:.2f})"
        for way, (value, lower, upper) in zip(timed, values, strict=True)
    ]
    size = (_WIDTH_INCHES, 0.9 + _ROW_INCHES * len(timed))
    title = "Predicted speedup of each way" if predicted else "Speedup of each way"
    return draw("speedups", title, "; ".join(texts), size, paint)
