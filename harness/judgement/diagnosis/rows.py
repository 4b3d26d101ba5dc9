"""Rows that are missing, doubled, in another order, zero, or wrong in one shard only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from harness.judgement.diagnosis.joins import Join, PerShard
from harness.judgement.diagnosis.layout import Layout, partitions
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.scales import place_of
from harness.judgement.diagnosis.wording import first_upper, listed, rows_text, sizes_text
from harness.judgement.tolerance import epsilon_of

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
        return _places(_texts(found), _texts(expected))
    close = 1e-4 if epsilon_of(found.dtype) and epsilon_of(found.dtype) < 1e-5 else 64.0 * epsilon_of(found.dtype)
    wide = np.complex128 if np.iscomplexobj(found) else np.float64
    if found.dtype.kind not in "fciub" and not epsilon_of(found.dtype):
        return None
    have = found.astype(wide).reshape(found.shape[0], expected[0].size)
    want = expected.astype(wide).reshape(expected.shape[0], expected[0].size)
    scale = float(np.max(np.abs(want))) if want.size else 0.0
    places: list[int] = []
    for number, row in enumerate(have):
        error = np.max(np.abs(want - row), axis=1)
        near = np.flatnonzero(error <= close * scale)
        if not len(near):
            return None
        follow = places[-1] + 1 if places else number
        choice = number if number in near else follow if follow in near else int(near[np.argmin(error[near])])
        places.append(int(choice))
    return places


def _texts(array: Array) -> Array:
    """An array of texts with the texts in place of references to them."""
    return array.astype("S") if array.dtype.kind == "O" else array


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
    rows = {row.tobytes() for row in (_texts(leaf.expected) if leaf.expected.dtype.kind in "OSU" else leaf.expected)}
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
            yield Cause(f"{first_upper(text)}{reason}", place, tuple(question.wrong), at_join=at_join)
            return


def _numbered_by_shard(question: Question, leaf: Leaf, layout: Layout | None) -> bool:
    """Whether rows of one whole number each are the reference's of each shard: equal numbers are no moved rows."""
    expected = leaf.expected
    if layout is None or expected is None or expected.dtype.kind not in "iub" or expected[0].size != 1:
        return False
    shards = PerShard.run(question, layout)
    return shards is not None and shards.join_that_gives(leaf, leaf) == Join("concat", layout.axis)


def _others_follow(question: Question, leaf: Leaf, places: list[int], count: int) -> bool:
    """Whether the other outputs are moved alike, or follow from it in another way (gradients of these rows)."""
    for other in question.wrong:
        if other is leaf or other.part != "outputs":
            continue
        mine = rows_of(other)
        if mine != places and other.expected is not None and other.expected.shape[:1] == (count,):
            return False
    return True


def _movement(places: list[int], count: int, layout: Layout | None) -> tuple[str, bool]:
    missing = sorted(set(range(count)) - set(places))
    doubled = sorted({row for row in places if places.count(row) > 1})
    if not places:
        return f"all {count} rows were dropped", True
    if missing and not doubled and places == sorted(places):
        verb = "was" if len(missing) == 1 else "were"
        return f"{rows_text(missing)} of {count} {verb} dropped", True
    if doubled and not missing:
        verb = "occurs" if len(doubled) == 1 else "occur"
        return f"{rows_text(doubled)} of {count} {verb} more than once", True
    if doubled and any(place != row for row, place in enumerate(places) if row not in missing):
        verb = "occurs" if len(doubled) == 1 else "occur"
        lost = f"{rows_text(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        return f"{rows_text(doubled)} of {count} {verb} more than once, and {lost}", True
    if doubled:
        instead = sorted({places[row] for row in missing if row < len(places)}) or doubled
        verb = "takes" if len(instead) == 1 else "take"
        return f"{first_upper(rows_text(instead))} {verb} the place of {rows_text(missing)}", True
    if missing:
        verb = "was" if len(missing) == 1 else "were"
        return f"{rows_text(missing)} of {count} {verb} dropped, and the others are in a different order", True
    if places == list(range(count))[::-1]:
        return f"the {count} rows are in reverse order", False
    # With one row a shard, rows that are shifted are whole shards too.
    shift = places[0] % count
    shifted = places == [(row + shift) % count for row in range(count)]
    order = _order_of_shards(places, layout) if layout is not None else []
    if layout is not None and order and (max(layout.sizes) > 1 or not shifted):
        told = f": {listed([str(shard) for shard in order])}" if len(order) <= _MOST_SHARDS else ""
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
        name = leaf.name.removesuffix(" after the call")
        what = []
        if others:
            verb = "gets" if len(others) == 1 else "get"
            source = rows_text([places[row] for row in others])
            what.append(f"{rows_text(others)} of {name} {verb} what belongs in {source}")
        if kept:
            keep = "keeps its old value" if len(kept) == 1 else "keep their old values"
            what.append(f"{rows_text(kept)} of {name} {keep}" if not others else f"{rows_text(kept)} {keep}")
        if what:
            yield Cause(first_upper(listed(what)), place_of(question, leaf), tuple(question.wrong))
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
    for how, index, zero in (("zeros", last, True), ("copies of the last", last, False), ("the first", first, False)):
        own = [
            leaf
            if array is None or not array.ndim or array.shape[0] != rows
            else tf.concat([leaf, tf.gather(tf.zeros_like(leaf) if zero else leaf, index)], 0)
            for leaf, array in zip(leaves, arrays, strict=True)
        ]
        result = question.run(inputs=question.with_leaves(own), gradients=False)
        if result is not None and all(leaf.explained_by(leaf.of(result)) for leaf in outputs):
            yield Cause(
                f"the batch of {rows} rows is padded to {rows + more} with {how}, and these rows count in "
                f"{outputs[0].name}",
                place_of(question, outputs[0]),
                tuple(question.wrong),
                "remove the rows that were added, or split into parts of different sizes",
            )
            return


def empty_shard(question: Question) -> Iterator[Cause]:
    """A shard without rows, of which the reference's results are not numbers either."""
    import tensorflow as tf

    pieces = [piece for piece in question.seen.pieces if not piece.rows]
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    if not pieces or not outputs:
        return
    arrays = question.input_arrays
    piece, whole = pieces[0], arrays[pieces[0].leaf]
    assert whole is not None
    rows = whole.shape[piece.axis]
    own = [
        leaf
        if array is None or array.ndim <= piece.axis or array.shape[piece.axis] != rows
        # As many columns as there were, and no rows.
        else tf.gather(leaf, tf.constant([], tf.int32), axis=piece.axis)
        for leaf, array in zip(question.reference.leaves(), arrays, strict=True)
    ]
    result = question.run(inputs=question.with_leaves(own), gradients=False)
    values = [None if result is None else leaf.of(result) for leaf in outputs]
    if all(
        value is not None and leaf.found is not None and np.isnan(value).all() and np.isnan(leaf.found).any()
        for leaf, value in zip(outputs, values, strict=True)
    ):
        count = len(question.devices)
        yield Cause(
            f"a shard is empty: {rows} rows are split over {count} devices, and {outputs[0].name} of 0 rows is NaN",
            piece.place,
            tuple(question.wrong),
            "skip the empty shards, or divide by the number of rows of the whole batch",
        )


def one_shard(question: Question, *, anyhow: bool = False) -> Iterator[Cause]:
    """Only the rows of some shards differ: they are zero, a factor of the right ones, or shifted."""
    for layout in partitions(question):
        if layout.axis != 0 or len(layout.sizes) < 2:
            continue
        claims: list[tuple[list[int], str]] = []
        for leaf in question.wrong:
            if leaf.part != "outputs" or leaf.found is None or leaf.expected is None:
                break
            if leaf.found.shape != leaf.expected.shape or not leaf.found.ndim or leaf.found.shape[0] != layout.rows:
                break
            wrong = _wrong_rows(leaf)
            shards = [number for number, rows in enumerate(layout.shards) if set(rows) & set(wrong)]
            if not shards or len(shards) == len(layout.shards):
                break
            rows = sorted(row for number in shards for row in layout.shards[number])
            if not set(wrong) <= set(rows):
                break  # the parts that were seen are not all of the batch
            what = _of_rows(leaf, rows)
            if what is None:
                if not anyhow or not set(rows) <= set(wrong):
                    break
                what = "wrong"
            claims.append((shards, what))
        else:
            if claims and all(claim == claims[0] for claim in claims):
                shards, what = claims[0]
                rows = sorted(row for number in shards for row in layout.shards[number])
                one = len(rows) == 1
                whose, others = layout.whose(question, shards), "shards" if layout.is_of_devices(question) else "rows"
                sentence = f"{whose} {'is' if one else 'are'} {what}; the other {others} are right"
                if anyhow:
                    sentence = f"only {whose} {'differs' if one else 'differ'}; the other {others} are right"
                place = place_of(question, question.wrong[0])
                yield Cause(first_upper(sentence), place, tuple(question.wrong), rows=tuple(rows))
                return


def _wrong_rows(leaf: Leaf) -> list[int]:
    assert leaf.found is not None
    assert leaf.expected is not None
    if leaf.found.dtype.kind in "OSU":
        return [row for row, one in enumerate(leaf.found) if not np.array_equal(one, leaf.expected[row])]
    wide = np.complex128 if np.iscomplexobj(leaf.found) else np.float64
    with np.errstate(invalid="ignore"):
        error = np.abs(leaf.found.astype(wide) - leaf.expected.astype(wide)).reshape(leaf.found.shape[0], -1)
        scale = np.max(np.abs(leaf.expected.astype(wide)))
    bad = ~(error <= max(1e-5, 8.0 * epsilon_of(leaf.found.dtype)) * scale)
    return [int(row) for row in np.flatnonzero(bad.any(axis=1))]


def _of_rows(leaf: Leaf, rows: Sequence[int]) -> str | None:
    """What became of these rows, where it can be said in one word; it is checked against the numbers."""
    assert leaf.found is not None
    assert leaf.expected is not None
    part = leaf.found[list(rows)]
    if part.dtype.kind in "OSU":
        return None
    if np.issubdtype(part.dtype, np.inexact) and np.all(np.isnan(part)):
        return "not a number"
    if not np.any(part):
        return "zero: the result of the device does not arrive"
    if not epsilon_of(part.dtype) or np.iscomplexobj(part):
        return None
    have, want = part.astype(np.float64), leaf.expected[list(rows)].astype(np.float64)

    def tried(values: Array) -> bool:
        predicted = leaf.expected.copy()  # type: ignore[union-attr]
        predicted[list(rows)] = values
        return leaf.explained_by(predicted)

    square = float(np.sum(want * want))
    if part.size > 1 and square:
        ratio = float(np.sum(have * want)) / square
        if tried(ratio * want):
            return f"{ratio:.4g} times {'that' if len(rows) == 1 else 'those'} of the single-device run"
        offset = float(np.mean(have - want))
        if tried(want + offset):
            return f"off by {offset:.4g}"
    return None
