"""A table of the page: a caption, heads, and rows whose first cell names the row."""

from __future__ import annotations

from dataclasses import dataclass

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


def table(
    caption: str, head: tuple[str, ...], rows: list[tuple[str, ...]], numeric: tuple[int, ...] = ()
) -> Table:
    """The table, with as many rows as anybody reads."""
    return Table(caption, head, tuple(rows[:MOST_ROWS]), frozenset(numeric), max(0, len(rows) - MOST_ROWS))
