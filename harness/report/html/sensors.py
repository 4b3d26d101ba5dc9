"""Sensor readings over time: a chart for each sensor, a line for each device."""

from __future__ import annotations

from statistics import median

from harness.plural import plural
from harness.records import RunRecord, Series
from harness.report.html.charts.drawing import Chart
from harness.report.html.charts.lines import lines_chart
from harness.report.html.tables import Charted, Table, table
from harness.report.printable import device_label
from harness.report.quantities import duration, quantity

#: Charts; the table has all sensors.
_MOST_CHARTS = 6
#: Lines of a chart that can be told apart.
_MOST_LINES = 16
#: The most useful sensors come first.
_FIRST = ("temperature", "clock", "power", "rate")


def sensors_of(record: RunRecord) -> Charted | None:
    """Make the section; ``None`` where no sensor was read."""
    series = [(result.check, each) for result in record.results for each in result.series if each.at_s]
    if not series:
        return None
    groups: dict[tuple[str, str, str], list[Series]] = {}
    for check, each in series:
        groups.setdefault((each.name, each.unit, check), []).append(each)
    ordered = sorted(groups, key=lambda key: next((i for i, word in enumerate(_FIRST) if word in key[0]), len(_FIRST)))
    charts = [
        _chart(f"sensor-{index}", *key, groups[key])
        for index, key in enumerate(ordered[:_MOST_CHARTS])
        if any(value is not None for each in groups[key] for value in each.values)
    ]
    return Charted(tuple(charts), _table(series))


def _chart(name: str, sensor: str, unit: str, check: str, series: list[Series]) -> Chart:
    lines = {device_label(each.device): (each.at_s, each.values) for each in series[:_MOST_LINES]}
    read = [(value, device_label(each.device)) for each in series for value in each.values if value is not None]
    most, least = max(read), min(read)
    description = (
        f"{plural(len(series), 'device')}. The highest reading is {quantity(most[0], unit)} on {most[1]}, the lowest "
        f"{quantity(least[0], unit)} on {least[1]}."
    )
    return lines_chart(name, f"{sensor} during {check}", description, lines, "s since the start", unit)


def _table(series: list[tuple[str, Series]]) -> Table:
    rows = []
    for check, each in series:
        known = [value for value in each.values if value is not None]
        facts = (min(known), median(known), max(known), known[-1]) if known else (None,) * 4
        rows.append(
            (
                device_label(each.device),
                each.name,
                check,
                duration(each.at_s[-1] - each.at_s[0]),
                f"{len(known)} of {len(each.values)}",
                *(quantity(fact, each.unit) for fact in facts),
            )
        )
    head = ("device", "sensor", "check", "over", "readings", "minimum", "median", "maximum", "last")
    return table("Sensor readings", head, rows, numeric=(3, 4, 5, 6, 7, 8))
