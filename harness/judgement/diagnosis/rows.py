"""Rows that are missing, doubled, in another order, zero, or wrong in one shard only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from harness.judgement.diagnosis.joins import Join, PerShard, with_rows
from harness.judgement.diagnosis.layout import Layout, partitions
from harness.judgement.diagnosis.leaves import explains, factor_of, variables_text
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.scales import place_of
from harness.judgement.diagnosis.wording import first_upper, listed, rows_text, sizes_text
from harness.judgement.tolerance import epsilon_of
from harness.judgement.values import wide
from harness.plural import plural

#: Of so many shards at most, a message gives the order in which they are joined.
_MOST_SHARDS = 16


def rows_of(leaf: Leaf) -> list[int] | None:
    """For each row of what was found, the row of the reference that it is; ``None`` where a row is none of them."""
    found, expected = leaf.found, leaf.expected
    if found is None or expected is None or not found.ndim or found.shape[1:] != expected.shape[1:]:
        return None
    if found.ndim != expected.ndim or not expected.size:
        return None
    if found.dtype.kind in "OSU":
        return _places(_comparable(found), _comparable(expected))
    epsilon = epsilon_of(found.dtype)
    if found.dtype.kind not in "fciub" and not epsilon:
        return None
    have, want = (_comparable(array).reshape(len(array), expected[0].size) for array in (found, expected))
    off = (1e-4 if 0.0 < epsilon < 1e-5 else 64.0 * epsilon) * float(np.max(np.abs(want)))
    places: list[int] = []
    for number, row in enumerate(have):
        error = np.max(np.abs(want - row), axis=1)
        near = np.flatnonzero(error <= off)
        if not len(near):
            return None
        follow = places[-1] + 1 if places else number
        choice = number if number in near else follow if follow in near else int(near[np.argmin(error[near])])
        places.append(int(choice))
    return places


def _comparable(array: Array) -> Array:
    """Texts instead of references to them, and all numbers in the widest dtype of their kind."""
    if array.dtype.kind in "OSU":
        return array.astype("S") if array.dtype.kind == "O" else array
    return wide(array)


def _places(found: Array, expected: Array) -> list[int] | None:
    """For each row of texts, the row of the reference that it is; ``None`` where one is in no row."""
    places: list[int] = []
    for number, row in enumerate(found):
        near = [other for other, wanted in enumerate(expected) if np.array_equal(row, wanted)]
        if not near:
            return None
        places.append(number if number in near else near[0])
    return places


def _telling(leaf: Leaf) -> bool:
    """Whether the rows of the reference can be told apart."""
    assert leaf.expected is not None
    rows = {row.tobytes() for row in _comparable(leaf.expected)}
    return len(rows) > max(1, int(leaf.expected.shape[0]) // 2)


def moved(question: Question) -> Iterator[Cause]:
    """An output has the reference's rows, but not all of them, some twice, or in another order."""
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    for leaf in outputs:
        places = rows_of(leaf)
        if places is None or leaf.expected is None or leaf.found is None or not _telling(leaf):
            continue
        count = leaf.expected.shape[0]
        layout = next(iter(partitions(question)), None)
        if places == list(range(count)) or _numbered_by_shard(question, leaf, layout):
            continue
        if layout is not None and count % layout.rows:
            continue  # its rows are not those of the batch
        text, lost = _movement(places, count, layout)
        at_cut = lost and layout is not None and layout.seen and sorted(layout.covered) != list(range(layout.rows))
        reason = f": the batch is split into {sizes_text(layout.sizes)}" if at_cut and layout is not None else ""
        # The line of the split is to blame for rows that do not reach a device, that of the join for all others.
        place = layout.place if at_cut and layout is not None else place_of(question, leaf)
        predicted = leaf.expected[places] if places else leaf.expected[:0]
        if leaf.explained_by(predicted) and _others_follow(question, leaf, places, count):
            # Whole shards are lost where their results are joined.
            rows = [set(shard) for shard in layout.shards] if layout is not None else []
            at_join = (
                bool(places)
                and lost
                and not at_cut
                and set(range(count)) - set(places)
                == set().union(*(shard for shard in rows if not shard & set(places)))
            )
            yield Cause(f"{first_upper(text)}{reason}", place, at_join=at_join)
            return


def _numbered_by_shard(question: Question, leaf: Leaf, layout: Layout | None) -> bool:
    """Whether rows of one whole number each are the reference's of each shard: equal numbers are no moved rows."""
    expected = leaf.expected
    if layout is None or expected is None or expected.dtype.kind not in "iub" or expected[0].size != 1:
        return False
    shards = PerShard.run(question, layout)
    return shards is not None and shards.join_that_gives(leaf) == Join("concat", layout.axis)


def _others_follow(question: Question, leaf: Leaf, places: list[int], count: int) -> bool:
    """Whether the other outputs are moved alike, or follow from it in another way (gradients of these rows)."""
    others = [other for other in question.wrong if other is not leaf and other.part == "outputs"]
    return all(
        other.expected is None or other.expected.shape[:1] != (count,) or rows_of(other) == places for other in others
    )


def dropped_text(rows: Sequence[int], count: int) -> str:
    """``Rows 4 to 7 of 8 were dropped``."""
    return f"{rows_text(rows)} of {count} {'was' if len(rows) == 1 else 'were'} dropped"


def _movement(places: list[int], count: int, layout: Layout | None) -> tuple[str, bool]:
    """What became of the rows, and whether some are lost."""
    missing = sorted(set(range(count)) - set(places))
    doubled = sorted({row for row in places if places.count(row) > 1})
    if not places:
        return f"all {count} rows were dropped", True
    if missing and not doubled:
        other = "" if places == sorted(places) else ", and the others are in a different order"
        return f"{dropped_text(missing, count)}{other}", True
    if doubled:
        again = f"{rows_text(doubled)} of {count} {'occurs' if len(doubled) == 1 else 'occur'} more than once"
        if not missing:
            return again, True
        if any(place != row for row, place in enumerate(places) if row not in missing):
            return f"{again}, and {rows_text(missing)} {'is' if len(missing) == 1 else 'are'} missing", True
        instead = sorted({places[row] for row in missing if row < len(places)}) or doubled
        verb = "takes" if len(instead) == 1 else "take"
        return f"{first_upper(rows_text(instead))} {verb} the place of {rows_text(missing)}", True
    if places == list(range(count))[::-1]:
        return f"the {count} rows are in reverse order", False
    # With one row a shard, rows that are shifted are whole shards too.
    shift = places[0] % count
    shifted = places == [(row + shift) % count for row in range(count)]
    order = _order_of_shards(places, layout) if layout is not None else []
    if layout is not None and order and (max(layout.sizes) > 1 or not shifted):
        told = f": shards {listed([str(shard) for shard in order])}" if len(order) <= _MOST_SHARDS else ""
        return f"the results of the shards are joined in a different order than the batch was split{told}", False
    if shifted:
        return f"the rows are shifted by {shift if shift <= count // 2 else shift - count}", False
    at = [row for row, place in enumerate(places) if row != place]
    return f"{rows_text(at)} of {count} are in a different order", False


def _order_of_shards(places: list[int], layout: Layout) -> list[int]:
    """In which order whole shards make up the rows; empty if they do not."""
    order: list[int] = []
    rest = list(places)
    while rest:
        shard = next((at for at, rows in enumerate(layout.shards) if rows and rest[: len(rows)] == list(rows)), None)
        if shard is None:
            return []
        order.append(shard)
        rest = rest[len(layout.shards[shard]) :]
    return order


def written_elsewhere(question: Question) -> Iterator[Cause]:
    """Rows of a variable keep the value that they had before the call, or get what belongs to other rows."""
    for leaf in (leaf for leaf in question.wrong if leaf.part == "state"):
        start, expected, found = leaf.start, leaf.expected, leaf.found
        if start is None or expected is None or found is None or not start.ndim or start.shape != expected.shape:
            continue
        count = len(start)
        either = replace(leaf, expected=np.concatenate([expected, start]))
        if found.shape != expected.shape or not _telling(leaf) or np.all(found == start):
            continue
        places = rows_of(either)
        if places is None or not leaf.explained_by(either.expected[places]):  # type: ignore[index]
            continue
        kept = [row for row, place in enumerate(places) if place >= count]
        others = [row for row, place in enumerate(places) if place < count and place != row]
        name = variables_text([leaf])
        what = []
        if others:
            verb = "gets" if len(others) == 1 else "get"
            source = rows_text([places[row] for row in others])
            what.append(f"{rows_text(others)} of {name} {verb} the values that belong in {source}")
        if kept:
            keep = "keeps its old value" if len(kept) == 1 else "keep their old values"
            what.append(f"{rows_text(kept)} of {name} {keep}" if not others else f"{rows_text(kept)} {keep}")
        if what:
            yield Cause(first_upper(listed(what)), place_of(question, leaf))
            return


def of_a_shard(question: Question) -> Iterator[Cause]:
    """Only the rows of some shards differ, in whatever way."""
    return one_shard(question, anyhow=True)


def padded(question: Question) -> Iterator[Cause]:
    """Rows are added so that the batch can be split evenly, and are not removed from the results."""
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


def empty_shard(question: Question) -> Iterator[Cause]:
    """A shard without rows, of which the reference's results are not numbers either."""
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


def one_shard(question: Question, *, anyhow: bool = False) -> Iterator[Cause]:
    """Only the rows of some shards differ: they are zero, a factor of the right ones, or shifted."""
    for layout in partitions(question):
        if layout.axis != 0 or len(layout.sizes) < 2:
            continue
        claims = [_claim(leaf, layout, anyhow=anyhow) for leaf in question.wrong]
        if not claims or claims[0] is None or any(claim != claims[0] for claim in claims):
            continue
        shards, rows, what = claims[0]
        one = len(rows) == 1
        whose, others = layout.whose(question, shards), "shards" if layout.is_of_devices(question) else "rows"
        sentence = f"{whose} {'is' if one else 'are'} {what}; the other {others} are right"
        if anyhow:
            sentence = f"only {whose} {'differs' if one else 'differ'}; the other {others} are right"
        yield Cause(first_upper(sentence), place_of(question, question.wrong[0]), rows=tuple(rows))
        return


def _claim(leaf: Leaf, layout: Layout, *, anyhow: bool) -> tuple[list[int], list[int], str] | None:
    """The shards whose rows alone are wrong in an output, these rows, and what became of them."""
    if leaf.part != "outputs" or leaf.found is None or leaf.expected is None:
        return None
    if leaf.found.shape != leaf.expected.shape or leaf.found.shape[:1] != (layout.rows,):
        return None
    wrong = set(_wrong_rows(leaf))
    shards = [number for number, rows in enumerate(layout.shards) if wrong.intersection(rows)]
    rows = sorted(row for number in shards for row in layout.shards[number])
    if not shards or len(shards) == len(layout.shards) or not wrong.issubset(rows):
        return None  # none or all of them, or the parts that were seen are not all of the batch
    what = _of_rows(leaf, rows)
    if what is None and anyhow and wrong.issuperset(rows):
        what = "wrong"
    return None if what is None else (shards, rows, what)


def _wrong_rows(leaf: Leaf) -> list[int]:
    assert leaf.found is not None
    assert leaf.expected is not None
    if leaf.found.dtype.kind in "OSU":
        return [row for row, one in enumerate(leaf.found) if not np.array_equal(one, leaf.expected[row])]
    have, want = _comparable(leaf.found), _comparable(leaf.expected)
    off = max(1e-5, 8.0 * epsilon_of(leaf.found.dtype)) * np.max(np.abs(want))
    bad = ~(np.abs(have - want).reshape(len(have), -1) <= off)
    return [int(row) for row in np.flatnonzero(bad.any(axis=1))]


def _of_rows(leaf: Leaf, rows: Sequence[int]) -> str | None:
    """What became of these rows, where it can be said in one word; it is checked against the numbers."""
    assert leaf.found is not None
    assert leaf.expected is not None
    part = leaf.found[list(rows)]
    if part.dtype.kind in "OSU":
        return None
    if np.issubdtype(part.dtype, np.inexact) and np.all(np.isnan(part)):
        return "NaN"
    if not np.any(part):
        return "zero: the result of the device does not arrive"
    if not epsilon_of(part.dtype) or np.iscomplexobj(part):
        return None
    have, want = part.astype(np.float64), leaf.expected[list(rows)].astype(np.float64)

    def tried(values: Array) -> bool:
        predicted = leaf.expected.copy()  # type: ignore[union-attr]
        predicted[list(rows)] = values
        return leaf.explained_by(predicted)

    if part.size > 1 and (ratio := factor_of(have, want)) is not None:
        if tried(ratio * want):
            return f"{ratio:.4g} times {'that' if len(rows) == 1 else 'those'} of the single-device run"
        offset = float(np.mean(have - want))
        if tried(want + offset):
            return f"off by {offset:.4g}"
    return None
