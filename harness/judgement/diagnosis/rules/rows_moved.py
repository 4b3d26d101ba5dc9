"""An output has the reference's rows, but not all of them, some twice, or in another order."""

from __future__ import annotations

from collections.abc import Iterator

from harness.judgement.diagnosis.joins import Join, PerShard
from harness.judgement.diagnosis.layout import Layout, partitions
from harness.judgement.diagnosis.leaves import place_of, rows_of, telling
from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import dropped_text, first_upper, listed, rows_text, sizes_text

#: Of so many shards at most, a message gives the order in which they are joined.
_MOST_SHARDS = 16


def _claims(question: Question) -> Iterator[Cause]:
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    for leaf in outputs:
        places = rows_of(leaf)
        if places is None or leaf.expected is None or leaf.found is None or not telling(leaf):
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


RULE = Rule("C101", "rows-moved", "rows lost, doubled or moved", _claims)
