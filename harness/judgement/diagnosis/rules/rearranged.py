"""Outputs are transposed, or joined along another axis, so that elements stand elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.judgement.diagnosis.leaves import place_of
from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.search import searched


def _claims(question: Question) -> Iterator[Cause]:
    how = []
    for leaf in question.wrong:
        if (text := _rearrangement(question, leaf)) is None:
            return
        how.append(text)
    if how:
        yield Cause(f"{question.wrong[0].name} {how[0]}", place_of(question, question.wrong[0]))


def _rearrangement(question: Question, leaf: Leaf) -> str | None:
    found, expected = leaf.found, leaf.expected
    if found is None or expected is None or leaf.part != "outputs" or found.size != expected.size:
        return None
    for one in range(expected.ndim):
        for other in range(one + 1, expected.ndim):
            if leaf.explained_by(np.swapaxes(expected, one, other)):
                stacks = (step for step in searched(question).steps if step.kind == "Pack")
                if any(step.result is not None and leaf.explained_by(step.result) for step in stacks):
                    return f"is transposed: the results of the shards are stacked along axis {other} instead of {one}"
                return f"is transposed: its axes {one} and {other} are exchanged"
    count = len(question.devices)
    for parts in sorted({count, *(size for size in found.shape if size > 1), *range(2, 9)}, key=lambda n: n != count):
        for axis in range(expected.ndim):
            if expected.shape[axis] % parts:
                continue
            pieces = np.split(expected, parts, axis=axis)
            for join in range(expected.ndim):
                if join != axis and leaf.explained_by(np.concatenate(pieces, axis=join)):
                    return f"is joined along axis {join}, but it was split along axis {axis}"
            for join in range(expected.ndim + 1):
                if leaf.explained_by(np.stack(pieces, axis=join)):
                    return f"is stacked along a new axis {join}; the shards' rows have to be concatenated"
    if found.shape != expected.shape and leaf.explained_by(expected.reshape(found.shape)):
        return (
            f"has the shape {list(found.shape)} instead of {list(expected.shape)}, with the elements in the same order"
        )
    return None


RULE = Rule("C405", "rearranged", "another axis", _claims)
