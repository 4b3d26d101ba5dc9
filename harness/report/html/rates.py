"""Figures of single devices: judged ones, speedups by number of devices, and others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median

from harness.plural import plural
from harness.records import Figure, RunRecord
from harness.report.html.charts.drawing import Chart
from harness.report.html.charts.lines import lines_chart
from harness.report.html.charts.shares import shares_chart
from harness.report.html.copies import is_copy
from harness.report.html.tables import Charted, Table, table
from harness.report.printable import device_label
from harness.report.quantities import MEASURED, NOTHING, measured, number, percent

#: Rows of one chart, which stays readable.
_MOST_ROWS = 24
_DEVICES = re.compile(r"\b(\d+) (?:devices?|cards?|GPUs?|CPUs?|cores?)\b", re.IGNORECASE)
_WHOLE = "the machine"


def is_speedup(figure: Figure) -> bool:
    """Whether the figure is a speedup on several devices."""
    return figure.name.startswith(("speedup", "scaling"))


def rates_of(record: RunRecord) -> Charted | None:
    """Make the section of judged figures; ``None`` where there are none."""
    judged = [each for each in _single(record) if each.expected and not is_speedup(each)]
    if not judged:
        return None
    rows: dict[str, list[tuple[str, float]]] = {}
    for figure in judged:
        rows.setdefault(figure.name, []).append((_where(figure), figure.value / (figure.expected or 1.0)))
    devices = list(dict.fromkeys(_where(figure) for figure in judged))
    drawn = dict(list(rows.items())[:_MOST_ROWS])
    shares = [share for marks in drawn.values() for _, share in marks]
    least = min(((share, name, label) for name, marks in drawn.items() for label, share in marks))
    description = (
        f"{plural(len(shares), 'figure')} of {plural(len(devices), 'device')} as shares of the expected value. Lowest: "
        f"{percent(least[0])} ({least[1]} on {least[2]}); median: {percent(median(shares))}; highest: "
        f"{percent(max(shares))}."
    )
    chart = shares_chart("rates-chart", "Measured rates as shares of the expected values", description, drawn, devices)
    return Charted((chart,), _table("All judged figures", judged))


def speedups_of(record: RunRecord) -> Charted | None:
    """Make the section of speedups; ``None`` where there are none."""
    figures = [each for each in _single(record) if is_speedup(each)]
    if not figures:
        return None
    lines: dict[str, list[tuple[float, float]]] = {}
    for figure in figures:
        counted = _DEVICES.search(figure.name)
        if counted is not None:
            what = " ".join(_DEVICES.sub("", figure.name).split())
            lines.setdefault(what, []).append((float(counted[1]), figure.value))
    curves = {
        what: ([x for x, _ in sorted(points)], [y for _, y in sorted(points)])
        for what, points in lines.items()
        if len(points) > 1
    }
    charts = (_curves(curves),) if curves else ()
    return Charted(charts, _table("All speedups", figures))


def others_of(record: RunRecord) -> Table | None:
    """Make the table of figures without an expectation; ``None`` where there are none."""
    figures = [each for each in _single(record) if not each.expected and not is_speedup(each)]
    return _table("Figures without an expected value", figures) if figures else None


def _single(record: RunRecord) -> list[Figure]:
    return [each for result in record.results for each in result.figures if not is_copy(each)]


def _where(figure: Figure) -> str:
    return device_label(figure.device or figure.peer) or _WHOLE


def _curves(curves: dict[str, tuple[list[float], list[float]]]) -> Chart:
    best = max((max(values), what) for what, (_, values) in curves.items())
    description = (
        f"{plural(len(curves), 'curve')} by number of devices; the highest point is {number(best[0])} ({best[1]})."
    )
    title = "Speedup over the number of devices"
    return lines_chart("speedups-chart", title, description, curves, "devices", "times as fast", counts=True)


def _table(caption: str, figures: Sequence[Figure]) -> Table:
    rows = [(each.name, _where(each), *measured(each), each.expected_from or NOTHING) for each in figures]
    head = ("figure", "device", *MEASURED, "expected from")
    return table(caption, head, rows, numeric=(2, 3, 4, 5))
