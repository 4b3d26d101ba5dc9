"""Writes the table of the speedups of a test session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_HEAD = ("speedup", "interval", "efficiency", "pairs", "stopped")
_STOPPED = {"precise": "precise", "budget": "out of time", "pairs": "pair limit"}


def speedup_lines(measured: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """Write the table. ``measured`` has the name of each benchmark, and its ``SpeedupRecord`` as a plain dict."""
    if not measured:
        return []
    width = max(len(name) for name, _ in measured)
    lines = [f"{'':<{width}}  {_HEAD[0]:>8}  {_HEAD[1]:^19}  {_HEAD[2]:>10}  {_HEAD[3]:>6}  {_HEAD[4]}"]
    for name, record in measured:
        lines.append(f"{name:<{width}}  {_figures(record)}")
        lines.append(f"  {record['label']}")
        lines += [f"  ! {warning}" for warning in record["warnings"]]
    return lines


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
