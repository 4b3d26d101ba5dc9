"""Prints several runs side by side, and the changes between two: for ``harness report`` and ``harness diff``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.plural import plural
from harness.report.comparison import RULE, Comparison
from harness.report.diff import Diff
from harness.report.printable import one_line
from harness.report.quantities import NOTHING, quantity
from harness.report.style import STYLES

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

#: Figures and differences shown; the page and the records have all of them.
_MOST_ROWS = 40
_STYLES = {"worse": "bold red", "better": "green", "changed": "cyan"}


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
        for figure in marked[:_MOST_ROWS]:
            values = (
                _value(quantity(value, figure.unit), place in figure.outliers)
                for place, value in enumerate(figure.values)
            )
            table.add_row(Text(one_line(figure.name)), Text(one_line(figure.where) or NOTHING), *values)
        console.print(table)
    more = f"; {len(marked) - _MOST_ROWS} of them are only in the page" if len(marked) > _MOST_ROWS else ""
    _line(console, f"{len(marked)} of {len(comparison.figures)} figures have an outlier{more}")
    _line(console, RULE)
    for column in comparison.columns:
        _line(console, f"{one_line(column.name)}: {column.record.verdict}, {one_line(column.note)}")


def print_diff(console: Console, said: Diff) -> None:
    """Print the differences, worse ones first, and the conclusion."""
    from rich.text import Text

    order = ("worse", "better", "changed")
    for direction in order:
        kind = [each for each in said.differences if each.direction == direction]
        for each in kind[:_MOST_ROWS]:
            console.print(
                Text.assemble((f"{direction:<8}", _STYLES[direction]), f"{each.about:<12}", each.what), soft_wrap=True
            )
        if len(kind) > _MOST_ROWS:
            _line(console, f"{direction:<8}and {len(kind) - _MOST_ROWS} more")
    _line(console, conclusion(said))


def conclusion(said: Diff) -> str:
    """Summarise the differences in one line."""
    compared = f"{plural(said.checks, 'check')} and {plural(said.figures, 'figure')} in both runs"
    if said.worse:
        return f"WORSE: {len(said.worse)} of {len(said.differences)} differences are worse ({compared})"
    return f"NOTHING WORSE: {plural(len(said.differences), 'difference')} ({compared})"


def _value(text: str, outlier: bool) -> Text:
    from rich.text import Text

    return Text(f"{text} (outlier)" if outlier else text, style="bold yellow" if outlier else "")


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)
