"""Compares the nesting of two results, and the positions of ragged and sparse values."""

from __future__ import annotations

from typing import Any

from harness.judgement.runs import Result
from harness.judgement.values import names_of
from harness.plural import plural
from harness.records import Finding


def judge_structure(found: Result, expected: Result, mode: str) -> list[Finding]:
    """Return one ``structure`` finding, or a ``shape`` finding for each output whose values are at other positions."""
    import tensorflow as tf

    try:
        tf.nest.assert_same_structure(found.structure, expected.structure, check_types=False)
    except (TypeError, ValueError):
        return [
            Finding(
                "structure",
                f"outputs ({mode})",
                None,
                _shape_of(expected.structure),
                _shape_of(found.structure),
                "the results have a different structure",
            )
        ]
    names = names_of(expected.structure)
    pairs = zip(names, tf.nest.flatten(found.structure), tf.nest.flatten(expected.structure), strict=True)
    return [
        Finding(
            "shape", f"{name} ({mode})", None, _shortened(want), _shortened(have), "values are at different positions"
        )
        for name, have, want in pairs
        if have != want
    ]


def _shape_of(structure: Any) -> str:
    import tensorflow as tf

    return f"{type(structure).__name__} of {plural(len(tf.nest.flatten(structure)), 'tensor')}"


def _shortened(layout: object) -> str:
    return "dense" if layout is None else f"{str(layout)[:120]}{'…' if len(str(layout)) > 120 else ''}"
