"""Judges how the results of two programs are nested, and where the values of ragged and sparse ones belong."""

from __future__ import annotations

from typing import Any

from harness.judgement.runs import Result
from harness.judgement.values import names_of
from harness.records import Finding


def judge_structure(found: Result, expected: Result, mode: str) -> list[Finding]:
    """One finding of the kind ``structure``, or one of the kind ``shape`` for each output with values elsewhere."""
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
                "the results are nested in another way",
            )
        ]
    names = names_of(expected.outputs, "output")
    pairs = zip(names, tf.nest.flatten(found.structure), tf.nest.flatten(expected.structure), strict=True)
    return [
        Finding("shape", f"{name} ({mode})", None, _shortened(want), _shortened(have), "values belong elsewhere")
        for name, have, want in pairs
        if have != want
    ]


def _shape_of(structure: Any) -> str:
    import tensorflow as tf

    return f"{type(structure).__name__} of {len(tf.nest.flatten(structure))} tensor(s)"


def _shortened(layout: object) -> str:
    return "dense" if layout is None else f"{str(layout)[:120]}{'…' if len(str(layout)) > 120 else ''}"
