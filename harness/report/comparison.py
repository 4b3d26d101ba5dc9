"""Compares several runs, and prints them side by side: verdicts and figures, with outliers marked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from harness.records import CheckResult, Exercised, Figure, RunRecord, Verdict
from harness.report.printable import device_label, one_line
from harness.report.quantities import NOTHING, quantity, size
from harness.report.terminal import print_line
from harness.report.verdicts import STYLES, effective_verdict

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

#: Figures and differences shown in the terminal; the page and the records have all of them.
MOST_ROWS = 40

#: Sound devices of one kind differ by up to 8 %.
NORMAL_SPREAD = 0.08
#: A value further from the median than this many scaled median absolute deviations is an outlier: Iglewicz and Hoaglin,
#: "How to Detect and Handle Outliers" (1993). 1.4826 makes the deviation that of a normal distribution.
_SCORE, _SCALE = 3.5, 1.4826
RULE = (
    "Outliers: with three or more runs, a value that is more than 8 % and more than 3.5 scaled median absolute "
    "deviations (Iglewicz and Hoaglin, 1993) from the median; with two runs, both values if they differ by more than "
    "8 % of the larger. A verdict is marked if most runs have a different one."
)


@dataclass(frozen=True, slots=True)
class Column:
    """One run, with a unique name."""

    name: str
    record: RunRecord

    @property
    def note(self) -> str:
        """The devices, the time, and what limits a comparison."""
        parts = [self.record.spec or "no devices", self.record.started_at]
        parts += [] if self.record.complete else ["INCOMPLETE"]
        parts += ["described machine, not hardware"] if self.record.described else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """One check: its verdict in each run, ``None`` where it has none, and which runs stand out."""

    check: str
    verdicts: tuple[Verdict | None, ...]
    outliers: frozenset[int]


@dataclass(frozen=True, slots=True)
class Figures:
    """One figure: its value in each run, ``None`` where it was not measured, and which runs stand out."""

    check: str
    name: str
    where: str
    unit: str
    values: tuple[float | None, ...]
    outliers: frozenset[int]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs side by side."""

    columns: tuple[Column, ...]
    verdicts: tuple[Verdicts, ...]
    figures: tuple[Figures, ...]

    @property
    def exercised(self) -> tuple[Exercised, ...]:
        """What each run exercised."""
        return tuple(sum((r.exercised for r in column.record.results), Exercised()) for column in self.columns)


def compare(columns: Sequence[Column]) -> Comparison:
    """Compare ``columns``. Checks and figures keep the order in which they first appear."""
    by_check = [{result.check: result for result in column.record.results} for column in columns]
    by_figure = [
        {figure_key(result, figure): figure.value for result in column.record.results for figure in result.figures}
        for column in columns
    ]
    checks = dict.fromkeys(check for results in by_check for check in results)
    keys = dict.fromkeys(key for values in by_figure for key in values)
    return Comparison(tuple(columns), tuple(_verdicts(checks, by_check)), tuple(_figures(keys, by_figure)))


def figure_key(result: CheckResult, figure: Figure) -> tuple[str, str, str, str]:
    """Identify a figure across runs by check, name, place and unit."""
    ends = " → ".join(filter(None, (device_label(figure.device), device_label(figure.peer))))
    of_size = size(figure.size_bytes) if figure.size_bytes is not None else ""
    return result.check, figure.name, ", ".join(filter(None, (ends, of_size))), figure.unit


def outliers(values: Sequence[float | None]) -> frozenset[int]:
    """Find the positions in ``values`` that are outliers by :data:`RULE`. ``None`` does not count."""
    known = [(place, value) for place, value in enumerate(values) if value is not None]
    finite = [(place, value) for place, value in known if math.isfinite(value)]
    strange = frozenset(place for place, value in known if not math.isfinite(value)) if finite else frozenset()
    if len(finite) == 2:
        (_, one), (_, other) = finite
        apart = abs(one - other) > NORMAL_SPREAD * max(abs(one), abs(other))
        return strange | (frozenset(place for place, _ in finite) if apart else frozenset())
    if len(finite) < 3:
        return strange
    middle = median(value for _, value in finite)
    deviation = _SCALE * median(abs(value - middle) for _, value in finite)
    return strange | frozenset(
        place
        for place, value in finite
        if abs(value - middle) > NORMAL_SPREAD * abs(middle) and abs(value - middle) > _SCORE * deviation
    )


def _verdicts(checks: dict[str, None], by_check: list[dict[str, CheckResult]]) -> Iterator[Verdicts]:
    for check in checks:
        given = tuple(effective_verdict(results[check]) if check in results else None for results in by_check)
        most = max(given, key=given.count)
        tied = sum(given.count(verdict) == given.count(most) for verdict in set(given)) > 1
        yield Verdicts(
            check,
            given,
            frozenset(place for place, verdict in enumerate(given) if tied or verdict != most),
        )


def _figures(
    keys: dict[tuple[str, str, str, str], None], by_figure: list[dict[tuple[str, str, str, str], float]]
) -> Iterator[Figures]:
    for key in keys:
        values = tuple(measured.get(key) for measured in by_figure)
        check, name, where, unit = key
        yield Figures(check, name, where, unit, values, outliers(values))


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print a table of the verdicts, and one of the figures that have an outlier."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    names = [one_line(column.name) for column in comparison.columns]
    verdicts = Table("check", *names, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in comparison.verdicts:
        cells = [
            Text.assemble(
                ("no result", "dim") if verdict is None else (str(verdict), STYLES[verdict]),
                " (differs)" if place in row.outliers else "",
            )
            for place, verdict in enumerate(row.verdicts)
        ]
        verdicts.add_row(Text(one_line(row.check)), *cells)
    if comparison.verdicts:
        console.print(verdicts)
    marked = [row for row in comparison.figures if row.outliers]
    if marked:
        table = Table("figure", "where", *names, box=box.SIMPLE_HEAD, pad_edge=False)
        for figure in marked[:MOST_ROWS]:
            values = (
                _value(quantity(value, figure.unit), place in figure.outliers)
                for place, value in enumerate(figure.values)
            )
            table.add_row(Text(one_line(figure.name)), Text(one_line(figure.where) or NOTHING), *values)
        console.print(table)
    more = f"; {len(marked) - MOST_ROWS} of them are only in the page" if len(marked) > MOST_ROWS else ""
    print_line(console, f"{len(marked)} of {len(comparison.figures)} figures have an outlier{more}")
    print_line(console, RULE)
    for column in comparison.columns:
        print_line(console, f"{one_line(column.name)}: {column.record.verdict}, {one_line(column.note)}")


def _value(text: str, outlier: bool) -> Text:
    from rich.text import Text

    return Text(f"{text} (outlier)" if outlier else text, style="bold yellow" if outlier else "")
