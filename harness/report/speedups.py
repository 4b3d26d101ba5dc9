"""Writes the table of the speedups of a test session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: Columns of a terminal that nobody has widened.
WIDTH = 80
_HEAD = ("speedup", "interval", "efficiency", "pairs", "stopped")
_STOPPED = {"precise": "precise", "budget": "out of time", "pairs": "pair limit"}

#: How wide the figures are, with the first word of the reason to stop; more of it may wrap.
_FIGURES = 8 + 2 + 19 + 2 + 10 + 2 + 6 + 2 + 7


def speedup_lines(measured: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """Write the table. ``measured`` has the name of each benchmark, and its ``SpeedupRecord`` as a plain dict."""
    if not measured:
        return []
    head = f"{_HEAD[0]:>8}  {_HEAD[1]:^19}  {_HEAD[2]:>10}  {_HEAD[3]:>6}  {_HEAD[4]}"
    first, rows = beside_names(
        [name for name, _ in measured], head, [_figures(record) for _, record in measured], _FIGURES
    )
    lines = [first]
    for row, (_, record) in zip(rows, measured, strict=True):
        lines += [*row, f"  {record['label']}", *(f"  ! {warning}" for warning in record["warnings"])]
    return lines


def beside_names(names: Sequence[str], head: str, figures: Sequence[str], width: int) -> tuple[str, list[list[str]]]:
    """The line of the head, and the lines of each row: figures beside their name or, where that is too wide, below it.

    So no figure wraps in 80 columns. ``width`` is that of the figures.
    """
    longest = max(map(len, names), default=0)
    if longest + 2 + width <= WIDTH:
        rows = [[f"{name:<{longest}}  {row}"] for name, row in zip(names, figures, strict=True)]
        return f"{'':<{longest}}  {head}", rows
    return f"  {head}", [[name, f"  {row}"] for name, row in zip(names, figures, strict=True)]


def _figures(record: Mapping[str, Any]) -> str:
    pairs = len(record["single_ns"])
    if not pairs:
        return "not measured"
    speedup = record["speedup"]
    interval = f"{speedup['lower']:.3f} to {speedup['upper']:.3f}"
    return (
        f"{speedup['value']:>8.3f}  {interval:^19}  {record['efficiency']:>10.1%}  {pairs:>6}  "
        f"{_STOPPED[record['stopped']]}"
    )
