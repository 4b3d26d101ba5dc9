"""Compares several runs, and prints them side by side: verdicts and figures, with outliers marked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

from harness.records import CheckResult, Figure, RunRecord, Verdict
from harness.report.printable import device_label, one_line
from harness.report.quantities import NOTHING, quantity, size
from harness.report.terminal import make_table, print_line
from harness.report.verdicts import STYLES

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

#: What identifies a figure across runs: check, name, place and unit.
FigureKey: TypeAlias = tuple[str, str, str, str]
#: Figures and differences shown in the terminal; the page and the records have all of them.
MOST_ROWS = 40

#: Sound devices of one kind differ by up to 8 %.
NORMAL_SPREAD = 0.08
#: A value further from the median than this many scaled median absolute deviations is an outlier: Iglewicz and Hoaglin,
#: "How to Detect and Handle Outliers" (1993). 1.4826 makes the deviation that of a normal distribution.
_SCORE, _SCALE = 3.5, 1.4826
RULE = (
    "Outliers: with three or more runs, a value that is more than 8% and more than 3.5 scaled median absolute "
    "deviations (Iglewicz and Hoaglin, 1993) from the median; with two runs, both values if they differ by more than "
    "8% of the larger. A verdict is marked if most runs have a different one."
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
        parts += ["described machine, not real hardware"] if self.record.described else []
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

    @property
    def shown(self) -> list[tuple[str, bool]]:
        """Each value as text, and whether it is an outlier."""
        return [(quantity(value, self.unit), place in self.outliers) for place, value in enumerate(self.values)]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs side by side."""

    columns: tuple[Column, ...]
    verdicts: tuple[Verdicts, ...]
    figures: tuple[Figures, ...]


def compare(columns: Sequence[Column]) -> Comparison:
    """Compare ``columns``. Checks and figures keep the order in which they first appear."""
    by_check = [{result.check: result for result in column.record.results} for column in columns]
    by_figure = [_values_of(column.record) for column in columns]
    checks = dict.fromkeys(check for results in by_check for check in results)
    keys = dict.fromkeys(key for values in by_figure for key in values)
    return Comparison(tuple(columns), tuple(_verdicts(checks, by_check)), tuple(_figures(keys, by_figure)))


def _values_of(record: RunRecord) -> dict[FigureKey, float]:
    """Return the values of all figures of a run."""
    return {_key(result, figure): figure.value for result in record.results for figure in result.figures}


def _key(result: CheckResult, figure: Figure) -> FigureKey:
    of_size = size(figure.size_bytes) if figure.size_bytes is not None else ""
    return result.check, figure.name, ", ".join(filter(None, (place(figure), of_size))), figure.unit


def place(figure: Figure) -> str:
    """Name the device of a figure, or both ends of a copy."""
    return " → ".join(filter(None, (device_label(figure.device), device_label(figure.peer))))


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


def _verdicts(checks: Iterable[str], by_check: Sequence[Mapping[str, CheckResult]]) -> Iterator[Verdicts]:
    for check in checks:
        given = tuple(results[check].verdict if check in results else None for results in by_check)
        most = max(given, key=given.count)
        tied = sum(given.count(verdict) == given.count(most) for verdict in set(given)) > 1
        differing = frozenset(place for place, verdict in enumerate(given) if tied or verdict != most)
        yield Verdicts(check, given, differing)


def _figures(keys: Iterable[FigureKey], by_figure: Sequence[Mapping[FigureKey, float]]) -> Iterator[Figures]:
    for key in keys:
        values = tuple(measured.get(key) for measured in by_figure)
        check, name, where, unit = key
        yield Figures(check, name, where, unit, values, outliers(values))


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print a table of the verdicts, and one of the figures that have an outlier."""
    from rich.text import Text

    names = [one_line(column.name) for column in comparison.columns]
    rows: list[list[str | Text]] = []
    for row in comparison.verdicts:
        cells = [
            Text.assemble(
                ("no result", "dim") if verdict is None else (str(verdict), STYLES[verdict]),
                " (differs)" if place in row.outliers else "",
            )
            for place, verdict in enumerate(row.verdicts)
        ]
        rows.append([one_line(row.check), *cells])
    if rows:
        head = ("check", *names)
        console.print(make_table(head, rows, long=head))
    marked = [row for row in comparison.figures if row.outliers]
    if marked:
        head = ("figure", "where", *names)
        rows = [
            [one_line(each.name), one_line(each.where) or NOTHING, *starmap(_value, each.shown)]
            for each in marked[:MOST_ROWS]
        ]
        console.print(make_table(head, rows, long=head))
    more = f"; {len(marked) - MOST_ROWS} of them are only in the page" if len(marked) > MOST_ROWS else ""
    print_line(console, f"figures with an outlier: {len(marked)} of {len(comparison.figures)}{more}")
    print_line(console, RULE)
    for column in comparison.columns:
        print_line(console, f"{one_line(column.name)}: {column.record.verdict}, {one_line(column.note)}")


def _value(text: str, outlier: bool) -> Text:
    from rich.text import Text

    return Text(f"{text} (outlier)" if outlier else text, style="bold yellow" if outlier else "")
