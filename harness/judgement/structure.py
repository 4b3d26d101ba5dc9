"""Compares the nesting of two results, and the positions of ragged and sparse values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from harness.judgement.runs import RAGGED, Result
from harness.judgement.values import names_of
from harness.lazy import tf
from harness.plural import plural
from harness.records import Finding

#: What is wrong where values that are right may stand in other rows.
_MOVED = "values are at different positions"


def judge_structure(found: Result, expected: Result, mode: str) -> list[Finding]:
    """Return one ``structure`` finding, or a ``shape`` finding for each output whose values are at other positions."""
    try:
        tf.nest.assert_same_structure(found.structure, expected.structure, check_types=False)
    except (TypeError, ValueError):
        unlike: tuple[str, str] | None = _shape_of(expected.structure), _shape_of(found.structure)
    else:
        unlike = _other_names(found.structure, expected.structure)
    if unlike is not None:
        want, have = unlike
        message = f"the results have a different structure: {have} instead of {want}"
        return [Finding("structure", "outputs", None, want, have, message, mode=mode)]
    names = names_of(expected.structure)
    pairs = zip(names, tf.nest.flatten(found.structure), tf.nest.flatten(expected.structure), strict=True)
    return [
        Finding("shape", name, None, _shortened(want), _shortened(have), _moved(have, want), mode=mode)
        for name, have, want in pairs
        if have != want
    ]


def _moved(have: object, want: object) -> str:
    """That values are at other positions; of a ragged tensor, which row has how many of them."""
    ends = [_row_ends(layout) for layout in (have, want)]
    if not all(ends):
        return _MOVED
    for found, expected in zip(*ends, strict=False):
        rows, due = ([end - start for start, end in pairwise(each)] for each in (found, expected))
        if len(rows) != len(due):
            return f"{_MOVED}: {plural(len(rows), 'row')} instead of {len(due):,}"
        for number, (count, right) in enumerate(zip(rows, due, strict=True)):
            if count != right:
                return f"{_MOVED}: row {number} has {plural(count, 'value')} instead of {right:,}"
    return _MOVED


def _row_ends(layout: object) -> list[list[int]]:
    """Where the rows of a ragged tensor begin and end, of each of its ragged axes."""
    _, ragged, ends = str(layout).partition(RAGGED)
    return [list(map(int, re.findall(r"\d+", each))) for each in re.findall(r"\[([\d, ]+)\]", ends)] if ragged else []


def _other_names(found: Any, expected: Any) -> tuple[str, str] | None:
    """The keys or fields of the first mapping or named tuple that has others than the one in its place."""
    both = (expected, found)
    if not all(isinstance(each, (Mapping, list, tuple)) for each in both):
        return None
    parts = [dict(each) if isinstance(each, Mapping) else dict(enumerate(each)) for each in both]
    names = [list(getattr(each, "_fields", part)) for each, part in zip(both, parts, strict=True)]
    named = all(isinstance(each, Mapping) or hasattr(each, "_fields") for each in both)
    if named and sorted(map(str, names[0])) != sorted(map(str, names[1])):
        written = [", ".join(map(str, each)) for each in names]
        return written[0], written[1]
    for key, want in parts[0].items():
        if key in parts[1] and (other := _other_names(parts[1][key], want)) is not None:
            return other
    return None


def _shape_of(structure: Any) -> str:
    return f"{type(structure).__name__} of {plural(len(tf.nest.flatten(structure)), 'tensor')}"


def _shortened(layout: object) -> str:
    return "dense" if layout is None else f"{str(layout)[:120]}{'…' if len(str(layout)) > 120 else ''}"
