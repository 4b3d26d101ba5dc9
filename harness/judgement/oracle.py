"""Compares results with those of an oracle: a NumPy function with an independent answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from harness.judgement.fields import in_fields
from harness.judgement.runs import Result, to_array
from harness.judgement.sensitivity import Spread
from harness.judgement.tolerance import epsilon_of
from harness.judgement.values import Judged, Subject, compare, names_of
from harness.lazy import tf
from harness.plural import plural
from harness.records import Finding


def ask_oracle(
    judged: Judged,
    oracle: Callable[..., Any],
    inputs: Mapping[str, Any],
    results: Mapping[str, Result],
    mode: str,
    measured: Callable[[int], Spread],
) -> None:
    """Compare the outputs of each of the ``results``, by the name of its program, with the oracle's answers."""
    answer = oracle(**tf.nest.map_structure(_wide, dict(inputs)))
    answers = [np.asarray(leaf) for leaf in tf.nest.flatten(in_fields(answer))]
    for who, result in results.items():
        if len(answers) != len(result.outputs):
            judged.findings.append(
                Finding(
                    "structure",
                    "outputs",
                    None,
                    f"{plural(len(answers), 'array')} from the oracle",
                    plural(len(result.outputs), "output"),
                    "the oracle and the program return different numbers of results",
                    mode=mode,
                )
            )
            return
        for index, (name, want) in enumerate(zip(names_of(result.structure), answers, strict=True)):
            have = result.outputs[index]
            if have is None:
                continue
            compare(
                judged,
                Subject("value", f"{name} of the {who} program", mode, against="the oracle"),
                have,
                want.astype(have.dtype),
                exact=False,
                measure=lambda wanted, index=index: replace(measured(wanted).outputs[index], factor=4.0),  # type: ignore[misc]
            )


def _wide(leaf: Any) -> Any:
    array = to_array(leaf) if hasattr(leaf, "dtype") else None
    if array is None:
        return leaf
    return array.astype(np.float64) if epsilon_of(array.dtype) and not np.iscomplexobj(array) else array
