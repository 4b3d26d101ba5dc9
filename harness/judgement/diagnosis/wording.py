"""Numbers, constants and lists as people write them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.lazy import tf

_MOST = 6
#: So many elements of a constant are named.
_FEW = 4


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


def constant_texts(mine: np.ndarray, theirs: np.ndarray) -> tuple[str, str]:
    """Write two constants that differ. Of large ones of one shape, give the element that differs most."""
    if max(mine.size, theirs.size) <= _FEW or mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return constant_text(mine), constant_text(theirs)
    unequal = mine != theirs
    if mine.dtype.kind in "iufc":
        # Others may differ by rounding alone.
        with np.errstate(invalid="ignore", over="ignore"):
            unequal = np.where(
                (mine == theirs) | ((mine != mine) & (theirs != theirs)), 0.0, np.abs(mine - 1.0 * theirs)
            )
    at = [int(index) for index in np.unravel_index(int(np.argmax(unequal)), mine.shape)]
    one, other = (constant_text(each[tuple(at)]) for each in (mine, theirs))
    return f"{constant_text(mine)} with {one} at {at}", f"one with {other}"


def constant_text(constant: np.ndarray) -> str:
    """Write a number, up to four as a list, and of more the shape."""
    if constant.size == 1:
        value = constant.reshape(-1)[0]
        return factor_text(float(value)) if constant.dtype.kind == "f" else str(value)
    if constant.size <= _FEW:
        return str(constant.tolist())
    return f"array of shape {list(constant.shape)}"


def attribute_text(name: str, value: object) -> str:
    """Write the value of an attribute. Those such as ``T`` and ``out_type`` hold the number of a dtype."""
    if isinstance(value, int) and not isinstance(value, bool) and (name in ("T", "SrcT", "DstT") or "type" in name):
        return str(tf.dtypes.as_dtype(value).name)
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def dropped_text(rows: Sequence[int], count: int) -> str:
    """``Rows 4 to 7 of 8 were dropped``."""
    return f"{rows_text(rows)} of {count} {'was' if len(rows) == 1 else 'were'} dropped"
