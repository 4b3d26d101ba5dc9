"""Numbers and lists as people write them."""

from __future__ import annotations

from collections.abc import Sequence

_MOST = 6


def rows_text(rows: Sequence[int], noun: str = "row") -> str:
    """``Row 3``, ``Rows 8 and 9``, ``Rows 4 to 7``, or their number where they are many."""
    rows = sorted(rows)
    if len(rows) == 1:
        return f"{noun} {rows[0]}"
    if len(rows) > 2 and rows == list(range(rows[0], rows[-1] + 1)):
        return f"{noun}s {rows[0]} to {rows[-1]}"
    if len(rows) <= _MOST:
        return f"{noun}s {listed([str(row) for row in rows])}"
    return f"{len(rows):,} {noun}s ({', '.join(map(str, rows[:3]))}, …)"


def rows_and_shards(rows: Sequence[int], shards: Sequence[int], devices: str) -> str:
    """``Rows 8 and 9, those of shard 2 (CPU:2),`` for rows that are all of some shards."""
    whose = "that" if len(rows) == 1 else "those"
    return f"{rows_text(rows)}, {whose} of {rows_text(shards, 'shard')}{devices},"


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def sizes_text(sizes: Sequence[int]) -> str:
    """``4 equal parts`` or ``4 parts of 3, 3, 3 and 2 rows``."""
    if len(set(sizes)) == 1:
        return f"{len(sizes)} equal parts of {sizes[0]} {'row' if sizes[0] == 1 else 'rows'}"
    if len(sizes) > 2 * _MOST:
        return f"{len(sizes)} parts of {min(sizes)} to {max(sizes)} rows"
    return f"{len(sizes)} parts of {listed([str(size) for size in sizes])} rows"


def first_upper(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def factor_text(factor: float) -> str:
    """A factor with four digits, or with as many as it takes to tell it from 1."""
    return next((text for digits in range(4, 17) if float(text := f"{factor:.{digits}g}") != 1.0), f"{factor:g}")
