"""Whole numbers that count rows, or other positions, and begin anew in each part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from harness.judgement.diagnosis.joins import PerShard
from harness.judgement.diagnosis.layout import Layout, partitions
from harness.judgement.diagnosis.leaves import place_of
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.recorded import steps_of
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.state import named_variables

#: So many numbers are not off by the offsets of the parts by chance.
_FEWEST = 3
#: Ops that give positions.
_POSITIONS = frozenset({"ArgMax", "ArgMin", "TopKV2", "TopK", "Where", "Range"})


def _claims(question: Question) -> Iterator[Cause]:
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    if not outputs or len(outputs) < len(question.wrong):
        return
    for sizes, layout in _numberings(question):
        first = np.repeat(np.cumsum([0, *sizes])[:-1], sizes)
        if not all(_lacks(leaf, first) for leaf in outputs):
            continue
        if sum(leaf.expected.size for leaf in outputs if leaf.expected is not None) < _FEWEST:
            # A few numbers may be so by chance: they have to be those of a shard, and positions.
            shards = PerShard.run(question, layout) if layout is not None else None
            if shards is None or not _are_positions(question, shards, outputs, first):
                continue
        name, batch = outputs[0].name, layout is not None and layout.axis == 0
        sentence = (
            f"the function is not row-wise: in {name}, the rows are numbered from 0 in each shard, not once over the "
            "whole batch"
            if batch
            else f"the indices of each part lack the part's offset: in {name}, positions are counted from 0 in each of "
            f"{len(sizes)} parts, not once over all {sum(sizes)}"
        )
        place = place_of(question, outputs[0]) or (layout.place if layout is not None else None)
        yield Cause(
            sentence,
            place,
            next_step="add to each shard's row numbers the number of rows in the shards before it"
            if batch
            else "add to each part's indices the number of positions in the parts before it",
            at_join=not batch,
        )
        return


def _numberings(question: Question) -> Iterator[tuple[list[int], Layout | None]]:
    """How many positions each part has: of inputs as they are split, then of variables in equal parts."""
    for layout in partitions(question):
        yield layout.sizes, layout
    count = len(question.devices)
    known = named_variables(question.reference.variables, question.snapshot.variables)
    shapes = [array.shape for array in question.input_arrays if array is not None]
    shapes += [tuple(variable.shape) for variable, _ in known if getattr(variable, "shape", None) is not None]
    lengths = {size for shape in shapes for size in shape if size is not None and size > count > 1}
    yield from (([length // count] * count, None) for length in sorted(lengths) if not length % count)


def _lacks(leaf: Leaf, first: Array) -> bool:
    """Whether numbers are the reference's, counted from the first one of their part."""
    found, expected = leaf.found, leaf.expected
    if found is None or expected is None or found.shape != expected.shape or expected.dtype.kind not in "iu":
        return False
    if not expected.size or np.min(expected) < 0 or np.max(expected) >= len(first):
        return False
    return bool(np.array_equal(found, expected - first[expected])) and bool(np.any(first[expected]))


def _are_positions(question: Question, shards: PerShard, outputs: Sequence[Leaf], first: Array) -> bool:
    """Whether numbers are what the reference gives for the shard that they are in, by an op that gives positions."""
    if not any(step.kind in _POSITIONS for step in steps_of(question, question.reference)):
        return False
    starts = sorted(set(first.tolist()))
    for leaf in outputs:
        parts = shards.parts(leaf)
        assert leaf.expected is not None
        numbers = {starts.index(start) for start in first[leaf.expected].ravel().tolist()}
        if parts is None or len(numbers) != 1 or not leaf.explained_by(parts[numbers.pop()]):
            return False
    return True


RULE = Rule("C106", "numbered-in-shard", "rows numbered from 0 in each shard", _claims)
