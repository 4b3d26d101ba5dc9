"""A shard has no rows, and the reference's results for no rows are not numbers either."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.judgement.diagnosis.joins import with_rows
from harness.judgement.diagnosis.leaves import variables_text
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.tolerance import epsilon_of
from harness.plural import plural


def _claims(question: Question) -> Iterator[Cause]:
    pieces = [piece for piece in question.seen.pieces if not piece.rows]
    wrong = [leaf for leaf in question.wrong if leaf.part != "gradients"]
    if not pieces or not wrong:
        return
    arrays = question.input_arrays
    piece, whole = pieces[0], arrays[pieces[0].leaf]
    assert whole is not None
    rows = whole.shape[piece.axis]
    # As many columns as there were, and no rows.
    none = {
        index: (piece.axis, ())
        for index, array in enumerate(arrays)
        if array is not None and array.shape[piece.axis : piece.axis + 1] == (rows,)
    }
    inputs = question.with_leaves(with_rows(question.reference.leaves(), none))
    result = question.run(inputs=inputs, gradients=False)
    first = next((leaf for leaf in wrong if result is not None and _is_lost(leaf, leaf.of(result))), None)
    if result is None or first is None:
        return
    # What the shards' updates leave may be not a number where the reference's update has no rows, and nowhere else.
    if all(_is_lost(leaf, leaf.of(result)) for leaf in wrong):
        count = len(question.devices)
        name = variables_text([first]) if first.part == "state" else first.name
        yield Cause(
            f"a shard is empty: {plural(rows, 'row')} {'is' if rows == 1 else 'are'} split over {count} devices, and "
            f"{name} is NaN for 0 rows",
            piece.place,
            next_step="skip the empty shards, or divide by the number of rows of the whole batch",
            final=True,
        )


def _is_lost(leaf: Leaf, of_none: Array | None) -> bool:
    """Whether elements of a result are not numbers, as they are for no rows."""
    found, expected = leaf.found, leaf.expected
    if (
        of_none is None
        or found is None
        or expected is None
        or not (epsilon_of(found.dtype) and epsilon_of(of_none.dtype))
    ):
        return False
    if leaf.part == "state":
        return found.shape == of_none.shape and bool(
            np.any(np.isnan(found)) and np.all(np.isnan(of_none) >= np.isnan(found))
        )
    return bool(np.isnan(of_none).all() and np.isnan(found).any())


RULE = Rule("C104", "empty-shard", "an empty shard", _claims)
