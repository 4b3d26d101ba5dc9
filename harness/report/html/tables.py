"""Tables of the page, and sections of charts and a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.report.html.charts.drawing import Chart
from harness.report.quantities import NOTHING

#: Rows shown of one table; the record has all of them.
MOST_ROWS = 400


@dataclass(frozen=True, slots=True)
class Table:
    """``numeric`` are the columns, from 0, that hold numbers. ``left_out`` rows are only in ``run.json``."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Charted:
    """A section of figures: charts of some, and a table of all."""

    charts: tuple[Chart, ...]
    table: Table


def table(caption: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]], numeric: tuple[int, ...] = ()) -> Table:
    """Make a table without empty columns, of at most :data:`MOST_ROWS` rows."""
    kept = [column for column in range(len(head)) if not rows or any(row[column] != NOTHING for row in rows)]
    return Table(
        caption,
        tuple(head[column] for column in kept),
        tuple(tuple(row[column] for column in kept) for row in rows[:MOST_ROWS]),
        frozenset(place for place, column in enumerate(kept) if column in numeric),
        max(0, len(rows) - MOST_ROWS),
    )
