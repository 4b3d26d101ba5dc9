"""Lays out plain tables whose first column has long names: in 80 columns, no figure wraps."""

from __future__ import annotations

from collections.abc import Sequence

#: Columns of a terminal that nobody has widened.
WIDTH = 80


def beside_names(names: Sequence[str], head: str, figures: Sequence[str], width: int) -> tuple[str, list[list[str]]]:
    """The line of the head, and the lines of each row: figures beside their name or, where that is too wide, below it.

    ``width`` is that of the figures.
    """
    longest = max(map(len, names), default=0)
    if longest + 2 + width <= WIDTH:
        rows = [[f"{name:<{longest}}  {row}"] for name, row in zip(names, figures, strict=True)]
        return f"{'':<{longest}}  {head}", rows
    return f"  {head}", [[name, f"  {row}"] for name, row in zip(names, figures, strict=True)]
