"""The results are the reference's for other rows: some left out, twice, added or paired with others, or none at all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from harness.judgement.diagnosis.joins import with_rows
from harness.judgement.diagnosis.layout import Layout, partitions
from harness.judgement.diagnosis.leaves import explains, place_of, variables_text
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.recorded import run_recorded
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import dropped_text, first_upper, listed, rows_text, sizes_text
from harness.judgement.tolerance import epsilon_of
from harness.lazy import tf
from harness.plural import plural


def _claims(question: Question) -> Iterator[Cause]:
    for claims in (_empty, _split, _padded):
        yield from claims(question)


def _split(question: Question) -> Iterator[Cause]:
    """The rows that the shards have: not all of them, some twice, or two inputs' in different orders."""
    wrong = [leaf for leaf in question.wrong if leaf.part != "gradients"]
    seen: list[object] = []
    for layout in partitions(question) if wrong else ():
        every = list(range(layout.rows))
        cuts = {index: (axis, list(chain(*shards))) for index, (axis, shards) in layout.cuts.items()}
        # Another input whose rows, all of them, go with other rows of this one.
        strays = [
            (index, rows)
            for index, (axis, rows) in cuts.items()
            if not axis and sorted(rows) == every and rows != layout.covered
        ]
        key = layout.covered, [rows for _, rows in strays]
        if layout.axis or (sorted(layout.covered) == every and not strays) or key in seen or not layout.seen:
            continue
        seen.append(key)
        inputs = question.with_leaves(with_rows(question.reference.leaves(), cuts))
        if explains(question.run(inputs=inputs, gradients=False), wrong):
            yield Cause(_split_text(question, layout, strays), layout.place)
            return


def _split_text(question: Question, layout: Layout, strays: list[tuple[int, list[int]]]) -> str:
    """What is wrong with the rows of the shards."""
    covered = layout.covered
    missing = sorted(set(range(layout.rows)) - set(covered))
    doubled = sorted({row for row in covered if covered.count(row) > 1})
    if not missing and not doubled:
        index, rows = strays[0]
        names, at = question.input_names, next(row for row, other in enumerate(covered) if rows[row] != other)
        return (
            f"{names[index]} and {names[layout.main]} are split into different rows: row {covered[at]} of "
            f"{names[layout.main]} is paired with row {rows[at]} of {names[index]}"
        )
    what = [dropped_text(missing, layout.rows)] if missing else []
    if doubled:
        are = "is" if len(doubled) == 1 else "are"
        what.append(f"{rows_text(doubled)} of {layout.rows} {are} counted twice")
    return first_upper(f"{listed(what)}: the batch is split into {sizes_text(layout.sizes)}")


def _empty(question: Question) -> Iterator[Cause]:
    """A shard without rows, for which the reference's results are not numbers either."""
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
        split = f"a shard is empty: {plural(rows, 'row')} {'is' if rows == 1 else 'are'} split over {count} devices"
        # What is picked of a shard's rows was not cut out of the batch, as its shards were.
        is_shard = any(other.rows and other.source == piece.source for other in question.seen.pieces)
        yield Cause(
            f"{split if is_shard else 'none is left of the rows of a shard'}, and {name} is NaN for 0 rows",
            piece.place if is_shard else _place_of_nan(question) or piece.place,
            next_step="skip shards without rows, or divide by the number of rows of the whole batch",
            final=True,
        )


def _place_of_nan(question: Question) -> str | None:
    """The line of the first op of the program that makes numbers which are not numbers."""
    steps, _, _ = run_recorded(question, question.parallel)
    lost = (step.place for step in steps if step.result is not None and np.any(np.isnan(step.result)))
    return next(lost, None)


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


def _padded(question: Question) -> Iterator[Cause]:
    """Rows that are added to split the batch evenly, and are not removed from the results."""
    wrong, arrays = [leaf for leaf in question.wrong if leaf.part != "gradients"], question.input_arrays
    rows = max((len(array) for array in arrays if array is not None and array.ndim), default=0)
    more = -rows % len(question.devices)
    last, first = [rows - 1] * more, list(range(more))
    ways = ("zeros", last, True), ("copies of the last row", last, False), ("its first rows", first, False)
    for how, index, zero in ways if more and wrong else ():
        own = [
            leaf
            if array is None or not array.ndim or len(array) != rows
            else tf.concat([leaf, tf.gather(tf.zeros_like(leaf) if zero else leaf, index)], 0)
            for leaf, array in zip(question.reference.leaves(), arrays, strict=True)
        ]
        if explains(question.run(inputs=question.with_leaves(own), gradients=False), wrong):
            yield Cause(
                f"the batch of {rows} rows is padded to {rows + more} with {how}, and the added rows count in "
                f"{wrong[0].name}",
                place_of(question, wrong[0]),
                next_step="remove the added rows from the results, or split into parts of different sizes",
            )
            return


RULE = Rule("C102", "rows-of-inputs", "rows left out, added or paired with others", _claims)
