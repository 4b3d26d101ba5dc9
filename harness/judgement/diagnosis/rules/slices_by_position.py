"""The rows of all shards, added up or averaged, stand where the indices of one shard say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from harness._tensorflow import op_callback
from harness.judgement.diagnosis.joins import Join, shard_leaves
from harness.judgement.diagnosis.layout import partitions
from harness.judgement.diagnosis.leaves import place_of
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.recorded import Step, equal, steps_of
from harness.judgement.diagnosis.rule import Rule

#: Ops that put rows where their indices say: which inputs are the indices, and which the rows.
_SCATTERS = {"ScatterNd": (0, 1), "UnsortedSegmentSum": (1, 0)}
_Scattered = tuple[Array, Array, Array]


def _claims(question: Question) -> Iterator[Cause]:
    wrong = question.wrong
    if not wrong or any(leaf.expected is None or leaf.found is None or not leaf.expected.ndim for leaf in wrong):
        return
    leaves = question.reference.leaves()
    shapes = {result.shape for _, _, result in _scattered(question, leaves)}
    if any(leaf.expected is not None and leaf.expected.shape not in shapes for leaf in wrong):
        return
    steps: list[Step] = []
    for layout in partitions(question):
        shards = [_scattered(question, shard_leaves(leaves, layout, number)) for number in range(len(layout.sizes))]
        steps = steps or steps_of(question, question.parallel)
        if all(any(_explains(leaf, shards, layout.sizes, at, steps) for at in range(len(shards))) for leaf in wrong):
            yield Cause(
                f"the values of {len(shards)} shards' IndexedSlices are added up by position and keep the indices of "
                "one shard, so the values of the other shards are added to the wrong rows",
                place_of(question, wrong[0]) or layout.place,
                "concatenate the shards' values, and their indices, or convert the IndexedSlices to dense tensors "
                "before adding them",
            )
            return


def _scattered(question: Question, leaves: list[Any]) -> list[_Scattered]:
    """What the reference scatters for these inputs: indices, rows, and the result."""
    seen: list[_Scattered] = []

    def on_op(kind: str, inputs: Any, _: Any, outputs: Any, graph: Any) -> None:
        if graph is None and kind in _SCATTERS:
            indices, rows = _SCATTERS[kind]
            seen.append((inputs[indices].numpy(), inputs[rows].numpy(), outputs[0].numpy()))

    with op_callback(on_op):
        question.run(inputs=question.with_leaves(leaves))
    return seen


def _explains(leaf: Leaf, shards: list[list[_Scattered]], sizes: list[int], at: int, steps: Sequence[Step]) -> bool:
    """Whether rows added up by position are in this result, and an op of the program adds them up so."""
    assert leaf.expected is not None
    for calls in zip(*shards, strict=False):
        rows = [rows for _, rows, _ in calls]
        indices, _, result = calls[at]
        if result.shape != leaf.expected.shape or any(each.shape != rows[0].shape for each in rows):
            continue
        for name in ("sum", "mean"):
            joined = Join(name).of(rows, sizes)
            if joined is None:
                continue
            predicted = np.zeros(result.shape, result.dtype)
            places = indices[..., 0] if indices.ndim > joined.ndim - 1 and indices.shape[-1] == 1 else indices
            if places.ndim == 1 and len(places) == len(joined):
                np.add.at(predicted, places, joined)
                if leaf.explained_by(predicted) and any(equal(each, joined) for step in steps for each in step.results):
                    return True
    return False


RULE = Rule("C113", "slices-by-position", "IndexedSlices added up by position", _claims)
