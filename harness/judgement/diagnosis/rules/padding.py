"""Rows are added so that the batch can be split evenly, and are not removed from the results."""

from __future__ import annotations

from collections.abc import Iterator

from harness.judgement.diagnosis.leaves import explains, place_of
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule


def _claims(question: Question) -> Iterator[Cause]:
    import tensorflow as tf

    count = len(question.devices)
    arrays = question.input_arrays
    rows = max((array.shape[0] for array in arrays if array is not None and array.ndim), default=0)
    outputs = [leaf for leaf in question.wrong if leaf.part != "gradients"]
    if not rows or not rows % count or not outputs:
        return
    more = -rows % count
    leaves = question.reference.leaves()
    last, first = [rows - 1] * more, list(range(more))
    ways = ("zeros", last, True), ("copies of the last row", last, False), ("its first rows", first, False)
    for how, index, zero in ways:
        own = [
            leaf
            if array is None or not array.ndim or array.shape[0] != rows
            else tf.concat([leaf, tf.gather(tf.zeros_like(leaf) if zero else leaf, index)], 0)
            for leaf, array in zip(leaves, arrays, strict=True)
        ]
        if explains(question.run(inputs=question.with_leaves(own), gradients=False), outputs):
            yield Cause(
                f"the batch of {rows} rows is padded to {rows + more} with {how}, and the added rows count in "
                f"{outputs[0].name}",
                place_of(question, outputs[0]),
                next_step="remove the added rows from the results, or split into parts of different sizes",
            )
            return


RULE = Rule("C105", "padding", "padding that counts in the results", _claims)
