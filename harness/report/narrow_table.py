"""A table that fits its terminal: where it is too wide, it continues below with the columns that are left."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Column, Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

#: What a column whose cells may take several lines needs at least.
_FOLDED = 16


class NarrowTable(Table):
    """Rich shortens the cells of a table that is too wide, and figures would lose digits."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Print all columns, or so many as fit at a time, each time with the first one."""
        groups = list(self._groups(options.max_width))
        if len(groups) == 1:
            yield from super().__rich_console__(console, options)
            return
        title = self.title
        for group in groups:
            part = copy(self)
            part.title, title = title, None
            part.columns = [copy(column) for column in group]
            for index, column in enumerate(part.columns):
                column._index = index
            yield from Table.__rich_console__(part, console, options)

    def _groups(self, width: int) -> Iterator[list[Column]]:
        first, *rest = self.columns
        # Between two columns are their padding and a divider; the edges take one each.
        _, right, _, left = self.padding
        gap = left + right + (1 if self.box is not None else 0)
        group, used = [first], 2 + _needed(first)
        for column in rest:
            needed = gap + _needed(column)
            if used + needed > width and len(group) > 1:
                yield group
                group, used = [first], 2 + _needed(first)
            group.append(column)
            used += needed
        yield group


def _needed(column: Column) -> int:
    texts = (each.plain if isinstance(each, Text) else str(each) for each in (column.header, *column.cells))
    widest = max(cell_len(line) for text in texts for line in text.split("\n"))
    return widest if column.no_wrap else min(widest, _FOLDED)
