"""The reference applied to each shard, and the results concatenated, averaged or added up, or some of them lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from harness.judgement.diagnosis.chance import by_chance
from harness.judgement.diagnosis.joins import WITHOUT, Join, PerShard, alone, shard_leaves
from harness.judgement.diagnosis.layout import Layout, partitions
from harness.judgement.diagnosis.neighbours import beside, reach_of
from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.scales import place_of, written
from harness.judgement.diagnosis.wording import first_upper, listed, rows_text, sizes_text
from harness.judgement.diagnosis.writing import writes
from harness.judgement.fields import in_fields
from harness.plural import plural


def _right(leaf: Leaf) -> Leaf:
    """The leaf as if the reference's value had been found."""
    return replace(leaf, found=leaf.expected, wrong=False)


def _several(leaf: Leaf) -> bool:
    return leaf.expected is not None and leaf.expected.size > 1


def per_shard(question: Question) -> Iterator[Cause]:
    """The differing results are the reference's of the shards, joined in some way."""
    wrong = question.wrong
    if any(leaf.expected is None for leaf in wrong):
        return
    for layout in partitions(question):
        shards = PerShard.run(question, layout)
        if shards is None:
            continue
        chosen = _chosen(shards)
        if chosen is not None and wrong:
            # One number may be some join of others by chance.
            first = max((leaf for leaf in wrong if id(leaf) in chosen), key=_several)
            yield _cause(question, layout, shards, first, chosen[id(first)])
            return
        if any(leaf.part == "state" for leaf in wrong):
            running = PerShard.run(question, layout, fresh=False)
            if running is not None and _in_turn(question, running):
                if (statistics := _batch_statistics(question, layout, shards)) is not None:
                    yield statistics
                    return
                yield Cause(
                    f"the training step ran once for each of the {len(layout.sizes)} shards, one after the other, "
                    "instead of once for the batch",
                    _written(question) or layout.place,
                    tuple(wrong),
                )
                return


def _chosen(shards: PerShard) -> dict[int, Join] | None:
    """How each differing result is joined, or ``None`` where one is not; gradients are computed with the joins."""
    question = shards.question
    chosen: dict[int, Join] = {}
    for leaf in question.wrong:
        if leaf.part == "gradients":
            continue
        join = shards.join_that_gives(leaf, leaf)
        if join is None:
            return None
        chosen[id(leaf)] = join
    if any(by_chance(shards, leaf, chosen) for leaf in question.wrong):
        return None
    if not any(leaf.part == "gradients" for leaf in question.wrong):
        return chosen or None
    every = []
    for leaf in question.leaves:
        if leaf.part == "outputs":
            join = chosen.get(id(leaf)) or shards.join_that_gives(leaf, leaf)
            if join is None:
                return None
            every.append(join)
    for stopped in [(), *(_all_but(len(shards.results)))]:
        result = question.run(joined_program(question, shards.layout, every, stopped))
        if result is not None and all(
            leaf.explained_by(leaf.of(result)) for leaf in question.wrong if leaf.part == "gradients"
        ):
            if not chosen:
                lost = Join("gradient of", stopped[0]) if len(stopped) == 1 else Join("gradient only", -1)
                if len(stopped) > 1:
                    lost = Join("gradient only", next(n for n in range(len(shards.results)) if n not in stopped))
                if not stopped:
                    return None
                chosen = {id(leaf): lost for leaf in question.wrong}
            return chosen
    return None


def _all_but(count: int) -> Iterator[tuple[int, ...]]:
    for number in range(count):
        yield (number,)
    if count > 2:
        for number in range(count):
            yield tuple(other for other in range(count) if other != number)


def joined_program(
    question: Question, layout: Layout, how: Sequence[Join], stopped: Sequence[int] = ()
) -> Callable[..., Any]:
    """The reference on each shard, its outputs joined as in ``how``; no gradients flow into the ``stopped`` shards."""

    def program(**inputs: Any) -> Any:
        import tensorflow as tf

        leaves = tf.nest.flatten(dict(inputs))
        parts = []
        structure: Any = None
        for number in range(len(layout.shards)):
            own = question.with_leaves(shard_leaves(leaves, layout, number))
            structure = in_fields(question.reference.fn(**own))
            flat = tf.nest.flatten(structure)
            parts.append([tf.stop_gradient(part) for part in flat] if number in stopped else flat)
        joined = [join.tensor(each, layout.sizes) for join, each in zip(how, zip(*parts, strict=True), strict=True)]
        return tf.nest.pack_sequence_as(structure, joined)

    return program


def _in_turn(question: Question, running: PerShard) -> bool:
    """Whether variables are left as by steps of the shards in turn."""
    last = running.results[-1]
    states = [leaf for leaf in question.wrong if leaf.part == "state"]
    return all(leaf.explained_by(leaf.of(last)) for leaf in states)


def _batch_statistics(question: Question, layout: Layout, shards: PerShard) -> Cause | None:
    """Rows that depend on the rest of their batch, with averages that each shard moves, as batch normalisation does.

    The shards' results are those of the reference from one state: nothing that it wrote has an effect on them.
    """
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    row_by_row = Join("concat", layout.axis)
    if not outputs or any(shards.join_that_gives(leaf, leaf) != row_by_row for leaf in outputs):
        return None
    states = [leaf.name.removesuffix(" after the call") for leaf in question.wrong if leaf.part == "state"]
    more = f" and {plural(len(states) - 1, 'more variable')}" if len(states) > 1 else ""
    return Cause(
        f"the function is not row-wise: rows of {outputs[0].name} depend on other rows of the batch, but each "
        f"shard has only its own ({sizes_text(layout.sizes)}), and updates {states[0]}{more} with them",
        layout.place,
        tuple(question.wrong),
        "compute anything that spans the batch once, on the joined rows; batch normalisation is row-wise with "
        "training=False",
    )


def _written(question: Question) -> str | None:
    leaf = next((leaf for leaf in question.wrong if leaf.part == "state"), None)
    return place_of(question, leaf) if leaf is not None else None


def _cause(question: Question, layout: Layout, shards: PerShard, leaf: Leaf, join: Join) -> Cause:
    """Say what the join means for this result."""
    count = len(layout.sizes)
    wrong = tuple(question.wrong)
    split = f"{sizes_text(layout.sizes)}"
    right = shards.join_that_gives(leaf, _right(leaf)) if leaf.part != "gradients" else None
    name = leaf.name
    joined = place_of(question, leaf) or layout.place
    if join.name.startswith("gradient"):
        who = rows_text([join.at], "shard")
        on = layout.devices(question, [join.at])
        if join.name == "gradient of":
            return Cause(f"{who}{on} is missing from the gradients", layout.place, wrong)
        return Cause(f"the gradients are those of {who}{on} alone", layout.place, wrong)
    if join.name == "only" or join.name in WITHOUT:
        who = _shard(question, layout, join.at)
        if join.name == "only":
            others = "part of the other shard is" if count == 2 else f"parts of the other {count - 1} shards are"
            return Cause(f"{name} counts {who} alone; the {others} lost", joined, wrong, at_join=True)
        return Cause(f"the part of {who} is missing from {name}{alone(join.name)}", joined, wrong, at_join=True)
    if join.name == "mean":
        if (right is not None and right.name == "weighted") or (right is None and _weighted(shards, leaf)):
            return Cause(
                f"{name} is a mean of means of uneven shards: {split} have equal weight",
                joined,
                wrong,
                "weight each shard's mean by its number of rows, or divide the sum by the number of all rows",
            )
        if right is not None and right.name == "sum":
            return Cause(f"{name} is {count} times too small: sums of {count} shards are averaged", joined, wrong)
        return Cause(
            f"{name} is averaged over shards, but it is not a mean over rows: the average of {count} shards' "
            "results is not the batch's",
            joined,
            wrong,
            "add up its parts, such as sums and counts, over the shards, and compute it once from the totals",
        )
    if join.name == "weighted":
        return Cause(
            f"{name} is averaged over shards, weighted by their rows, but it is not a mean over rows", joined, wrong
        )
    if join.name == "sum":
        if leaf.part == "state" and written(question, leaf) == count:
            return Cause(
                f"{name.removesuffix(' after the call')} is updated {count} times, once with each shard's gradient, "
                "instead of once for the batch",
                joined,
                wrong,
                "average the shards' gradients first, and apply them once",
            )
        if right is not None and right.name in ("mean", "weighted"):
            return Cause(
                f"{name} is summed over {count} shards, but each shard's value is a mean: about {count} times "
                "too large",
                joined,
                wrong,
                "average over the shards, weighted by their rows",
            )
        return Cause(f"{name} is summed over {count} shards, but the sum is not the batch's result", joined, wrong)
    if join.name == "twice":
        who = _shard(question, layout, join.at)
        return Cause(f"the part of {who} is counted twice in {name}", joined, wrong)
    if join.name in ("max", "min"):
        single = "" if _several(leaf) else ", which is that of one shard alone"
        return Cause(f"{name} is the {join.name}imum over the shards' results{single}", joined, wrong)
    if join.name in ("concat", "stack") and (join.name == "stack" or join.at != layout.axis):
        how = f"joined along axis {join.at}" if join.name == "concat" else f"stacked along a new axis {join.at}"
        text = f"{name} is {how}, but the batch is split along axis {layout.axis}"
        return Cause(text, joined, wrong, f"join with tf.concat along axis {layout.axis}")
    return _not_row_wise(question, layout, leaf, joined)


def _shard(question: Question, layout: Layout, number: int) -> str:
    """A shard with its device, or, of other parts than one for each device, its rows."""
    if len(layout.shards) > len(question.devices):
        return rows_text(layout.shards[number])
    return f"shard {number}{layout.devices(question, [number])}"


def _weighted(shards: PerShard, leaf: Leaf) -> bool:
    parts = shards.parts(leaf)
    value = Join("weighted").of(parts, shards.layout.sizes) if parts else None
    return _right(leaf).explained_by(value)


def writes_matter(question: Question, layout: Layout) -> bool:
    """Whether the shards' results would be others if the reference did not write to its variables."""
    with writes(lambda variable, *_: variable):
        shards = PerShard._run(question, layout, True)
    return shards is None or not all(
        shards.join_that_gives(leaf, leaf) for leaf in question.wrong if leaf.part == "outputs"
    )


def _not_row_wise(question: Question, layout: Layout, leaf: Leaf, joined: str | None) -> Cause:
    wrong = tuple(question.wrong)
    names = question.input_names
    if layout.seen and len(layout.cuts) > 1:
        for index in layout.cuts:
            # Without the cut of the batch itself there is nothing to join.
            if index == layout.main and len(layout.cuts) < 2:
                continue
            rest = layout.without(index)
            if rest.main == index:
                rest = replace(rest, main=next(iter(rest.cuts)))
            before, shards = PerShard.run(question, layout), PerShard.run(question, rest)
            outputs = [each for each in wrong if each.part == "outputs"]
            right = [_right(each) for each in outputs]
            if before is None or shards is None:
                continue
            joins = [shards.join_that_gives(each, each) for each in right]
            if (
                None not in joins
                and joins == [before.join_that_gives(each, each) for each in outputs]
                # If what is still cut has no effect, each shard gives the whole result, and there is nothing to join.
                and not all(each.explained_by(each.of(result)) for each in right for result in shards.results)
            ):
                return Cause(
                    f"{names[index]} is split like a batch, but every row needs all of it: each shard sees "
                    f"{len(layout.cuts[index][1][0])} of its {sum(map(len, layout.cuts[index][1]))} rows",
                    layout.place,
                    wrong,
                    f"give all of {names[index]} to every shard (broadcast=({names[index]!r},) in make_parallel)",
                )
    if question.seen_reference.writes and writes_matter(question, layout):
        return Cause(
            "each shard takes a training step of its own: its copy of the variables is updated with its own gradient, "
            "not with the average of all shards",
            joined,
            wrong,
            "average the gradients over the shards before the update",
        )
    if reach := reach_of(question, layout, [each for each in wrong if each.part == "outputs"]):
        return Cause(
            f"each shard lacks the {'rows' if not layout.axis else 'positions'} of its neighbours: {leaf.name} differs "
            f"only {beside(reach, layout.axis)}, and {names[layout.main]} is split along axis {layout.axis}",
            joined,
            wrong,
            f"give each shard {reach} more from each neighbour, and leave out what it computes for them",
        )
    if layout.axis != 0:
        return Cause(
            f"{names[layout.main]} is split along axis {layout.axis}, into {len(layout.sizes)} parts, but a result "
            "depends on all of that axis, or on the position along it; the batch is axis 0",
            layout.place,
            wrong,
            "split along axis 0",
        )
    if _only_on_rows_before(question, layout):
        return Cause(
            f"the function is not row-wise: rows of {leaf.name} depend on rows before them, but each shard starts over "
            f"({sizes_text(layout.sizes)}): the state, the carry or the offset of the shards before it is missing",
            layout.place,
            wrong,
            "start each shard with the state, carry or offset that the shards before it end with",
        )
    return Cause(
        f"the function is not row-wise: rows of {leaf.name} depend on other rows of the batch, but each shard "
        f"has only its own ({sizes_text(layout.sizes)})",
        layout.place,
        wrong,
        "compute anything that spans the batch once, on the joined rows",
    )


def _only_on_rows_before(question: Question, layout: Layout) -> bool:
    """Whether the reference gives the same first rows when it has no others, those of the first shard and some more."""
    import tensorflow as tf

    count = layout.sizes[0] + layout.sizes[1] // 2
    if layout.axis or layout.covered != list(range(layout.rows)) or layout.sizes[1] < 2:
        return False
    own = list(question.reference.leaves())
    for index, (axis, shards) in layout.cuts.items():
        own[index] = tf.gather(own[index], [row for rows in shards for row in rows][:count], axis=axis)
    result = question.run(inputs=question.with_leaves(own), gradients=False)
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    return (
        result is not None
        and bool(outputs)
        and all(
            leaf.expected is not None
            and leaf.expected.shape[:1] == (layout.rows,)
            and replace(leaf, found=leaf.expected[:count], expected=None, wrong=False).explained_by(leaf.of(result))
            for leaf in outputs
        )
    )


def rows_left_out(question: Question) -> Iterator[Cause]:
    """The results are those of fewer rows than there are, or of rows in other numbers."""
    leaves = question.reference.leaves()
    seen: list[object] = []
    for layout in partitions(question):
        covered = tuple(layout.covered)
        every = list(range(layout.rows))
        whole = sorted(covered) == every
        # Another input whose rows, all of them, go with other rows of this one.
        strays = [
            (index, rows)
            for index, (axis, shards) in layout.cuts.items()
            if not axis and sorted(rows := [row for part in shards for row in part]) == every and rows != list(covered)
        ]
        key = (covered, tuple(str(rows) for _, rows in strays))
        if layout.axis or (whole and not strays) or key in seen or not layout.seen:
            continue
        seen.append(key)
        own = list(leaves)
        import tensorflow as tf

        for index, (axis, shards) in layout.cuts.items():
            own[index] = tf.gather(own[index], [row for rows in shards for row in rows], axis=axis)
        result = question.run(inputs=question.with_leaves(own), gradients=False)
        wrong = [leaf for leaf in question.wrong if leaf.part != "gradients"]
        if result is None or not wrong or not all(leaf.explained_by(leaf.of(result)) for leaf in wrong):
            continue
        missing = sorted(set(range(layout.rows)) - set(covered))
        doubled = sorted({row for row in covered if covered.count(row) > 1})
        what = []
        if missing:
            what.append(f"{rows_text(missing)} of {layout.rows} {'was' if len(missing) == 1 else 'were'} dropped")
        if doubled:
            what.append(f"{rows_text(doubled)} of {layout.rows} {'is' if len(doubled) == 1 else 'are'} counted twice")
        if whole:
            index, rows = strays[0]
            names, at = question.input_names, next(row for row, other in enumerate(covered) if rows[row] != other)
            yield Cause(
                f"{names[index]} and {names[layout.main]} are split into different rows: row {covered[at]} of "
                f"{names[layout.main]} is paired with row {rows[at]} of {names[index]}",
                layout.place,
                tuple(question.wrong),
            )
            return
        if what:
            sentence = f"{listed(what)}: the batch is split into {sizes_text(layout.sizes)}"
            yield Cause(first_upper(sentence), layout.place, tuple(question.wrong))
            return
