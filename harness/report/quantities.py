"""Numbers with units, as text. A missing value is a dash, never 0."""

from __future__ import annotations

import math

from harness.records import Figure

#: Shown where nothing was measured.
NOTHING = "\u2013"
#: Units of time. Of a figure in one of them, less is better.
TIMES = frozenset({"ns", "us", "ms", "s"})


def number(value: float | None) -> str:
    """Format ``value`` with four significant digits, and commas between thousands."""
    if value is None:
        return NOTHING
    if not math.isfinite(value):
        return {"nan": "not a number", "inf": "infinite", "-inf": "-infinite"}[str(value)]
    size = abs(value)
    if size >= 1e9 or 0 < size < 1e-3:
        return f"{value:.3e}"
    if size >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.4g}"


def count(value: int) -> str:
    """Format a whole number with commas between thousands."""
    return f"{value:,}"


def quantity(value: float | None, unit: str) -> str:
    """Format ``value`` with its unit."""
    return NOTHING if value is None else f"{number(value)} {unit}".rstrip()


#: The columns of :func:`measured`.
MEASURED = ("size", "measured", "expected", "share")


def measured(figure: Figure) -> tuple[str, str, str, str]:
    """Format what was measured: its size, the value, the expected value, and the share of it that was reached."""
    share = percent(figure.value / figure.expected if figure.expected else None)
    return size(figure.size_bytes), quantity(figure.value, figure.unit), quantity(figure.expected, figure.unit), share


def percent(share: float | None) -> str:
    """Format a share of 1 as a percentage."""
    if share is None or not math.isfinite(share):
        return NOTHING
    return f"{share:.1%}" if abs(share) < 0.0995 else f"{share:.0%}"


def size(size_bytes: float | None) -> str:
    """Format bytes in the largest binary unit that leaves at least 1."""
    if size_bytes is None:
        return NOTHING
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


def duration(seconds: float) -> str:
    """Format seconds, or minutes and seconds."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"
