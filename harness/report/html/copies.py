"""Copies between devices and the host: matrices of bandwidth and latency."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from statistics import median

from harness.plural import plural
from harness.records import Figure, RunRecord
from harness.report.comparison import place
from harness.report.html.charts.drawing import Chart
from harness.report.html.charts.heat_map import heat_map
from harness.report.html.tables import Charted, Table, table
from harness.report.printable import device_label
from harness.report.quantities import MEASURED, TIMES, measured, quantity, size

#: Left out of names, so that ``copy host-to-device`` and ``copy device-to-device`` share a chart.
_ENDS = re.compile(r"\b(?:device|host)-to-(?:device|host)\b\s*")
#: A pair of devices in a text, such as ``GPU:1 -> GPU:3``.
_PAIR = re.compile(r"([\w/]+(?::\d+)?) (?:->|\u2192|to) ([\w/]+(?::\d+)?)")
_HOST = "host"
#: Charts of one section; the table has the rest.
_MOST_CHARTS = 4


def is_copy(figure: Figure) -> bool:
    """Whether the figure is a cell of a matrix."""
    return figure.device is not None and figure.peer is not None


def copies_of(record: RunRecord) -> Charted | None:
    """Make a matrix for each kind of copy, at its largest size; ``None`` where no copy was measured."""
    figures = [each for result in record.results for each in result.figures if is_copy(each)]
    if not figures:
        return None
    groups: dict[tuple[str, str], list[Figure]] = {}
    for figure in figures:
        groups.setdefault((_way(figure), figure.unit), []).append(figure)
    order = [device_label(card.label) for card in record.cards if card.error is None]
    # Bandwidth before latency, one direction before both at once.
    ways = sorted(groups, key=lambda key: (key[1] in TIMES, len(key[0])))
    named = _named_pairs(record)
    charts = [
        _matrix(f"copies-{index}", way, unit, groups[way, unit], order, named)
        for index, (way, unit) in enumerate(ways[:_MOST_CHARTS])
    ]
    return Charted(tuple(charts), _table(figures))


def _way(figure: Figure) -> str:
    return _ENDS.sub("", figure.name).strip() or "copy"


def _named_pairs(record: RunRecord) -> frozenset[tuple[str, str]]:
    """Find the pairs in findings about links and copies: ``GPU:1 -> GPU:3``, ``from host to GPU:0``."""
    return frozenset(
        (source, target)
        for result in record.results
        for finding in result.findings
        if finding.kind in ("corruption", "link")
        for source, target in ([finding.pair] if finding.pair else _PAIR.findall(f"{finding.where}; {finding.message}"))
    )


def _matrix(
    name: str, way: str, unit: str, figures: Sequence[Figure], order: Sequence[str], named: frozenset[tuple[str, str]]
) -> Chart:
    sizes = {figure.size_bytes for figure in figures if figure.size_bytes is not None}
    largest = max(sizes, default=None)
    drawn = [figure for figure in figures if figure.size_bytes == largest]
    values = {(device_label(each.device), device_label(each.peer)): each.value for each in drawn}
    labels = _labels((label for pair in values for label in pair), order)
    of_size = f", copies of {size(largest)}" if largest is not None else ""
    low, high = min(values, key=lambda pair: values[pair]), max(values, key=lambda pair: values[pair])
    description = (
        f"{plural(len(values), 'pair')}. Lowest: {quantity(values[low], unit)} from {low[0]} to {low[1]}; median: "
        f"{quantity(median(values.values()), unit)}; highest: {quantity(values[high], unit)} from {high[0]} to "
        f"{high[1]}. Dark cells are {'slow' if unit in TIMES or unit.endswith('/s') else 'low'}; blank cells were not "
        "measured."
    )
    wrong = [pair for pair in values if pair in named]
    if wrong:
        pairs = ", ".join(f"{source} \u2192 {target}" for source, target in wrong)
        description += f" Framed cells with a ! have findings: {pairs}."
    between = "devices and the host" if _HOST in labels else "devices"
    return heat_map(
        name,
        f"{way} between {between} in {unit}{of_size}",
        description,
        labels,
        values,
        unit,
        marked=wrong,
        dark_is_much=unit in TIMES,
    )


def _labels(seen: Iterable[str], order: Sequence[str]) -> list[str]:
    """Order labels: the host, the devices of the record, then others."""
    there = dict.fromkeys(seen)
    known = [label for label in (_HOST, *order) if label in there]
    return known + sorted(label for label in there if label not in known)


def _table(figures: Sequence[Figure]) -> Table:
    rows = [(place(each), each.name, *measured(each)) for each in figures]
    return table("All copies", ("pair", "copy", *MEASURED), rows, numeric=(2, 3, 4, 5))
