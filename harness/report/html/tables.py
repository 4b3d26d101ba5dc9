"""A table of the page: a caption, heads, and rows whose first cell names the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.report.quantities import NOTHING

#: Rows of one table that are shown; the record has all of them.
MOST_ROWS = 400


@dataclass(frozen=True, slots=True)
class Table:
    """``numeric`` are the columns, from 0, that hold numbers. ``left_out`` rows are in ``run.json`` alone."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    left_out: int = 0


def table(caption: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]], numeric: tuple[int, ...] = ()) -> Table:
    """The table, with as many rows as anybody reads, and without the columns that say nothing in any row."""
    kept = [column for column in range(len(head)) if not rows or any(row[column] != NOTHING for row in rows)]
    return Table(
        caption,
        tuple(head[column] for column in kept),
        tuple(tuple(row[column] for column in kept) for row in rows[:MOST_ROWS]),
        frozenset(place for place, column in enumerate(kept) if column in numeric),
        max(0, len(rows) - MOST_ROWS),
    )
