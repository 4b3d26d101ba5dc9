"""The results that differ are those of each shard alone, joined in another way than the batch needs, or in turn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from harness.judgement.diagnosis.chance import by_chance
from harness.judgement.diagnosis.joins import WITHOUT, Join, PerShard, alone, shard_leaves, with_rows
from harness.judgement.diagnosis.layout import Layout, partitions
from harness.judgement.diagnosis.leaves import explains, place_of, variables_text, written
from harness.judgement.diagnosis.neighbours import beside, reach_of
from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import rows_text, sizes_text
from harness.judgement.diagnosis.writing import AVERAGED, applied_by, applying, scaled, writes
from harness.judgement.fields import in_fields
from harness.lazy import tf
from harness.plural import plural


def _right(leaf: Leaf) -> Leaf:
    """The leaf as if the reference's value had been found."""
    return replace(leaf, found=leaf.expected, wrong=False)


def _several(leaf: Leaf) -> bool:
    return leaf.expected is not None and leaf.expected.size > 1


def _claims(question: Question) -> Iterator[Cause]:
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
            yield _cause(shards, first, chosen[id(first)])
            return
        if states := [leaf for leaf in wrong if leaf.part == "state"]:
            joins = [join for leaf in states if (join := shards.join_that_gives(leaf)) is not None]
            if len(joins) == len(states) and all(join.name == "only" for join in joins):
                yield _cause(shards, states[0], joins[0])
                return
            if (in_turn := _in_turn(shards, states)) is not None:
                yield in_turn
                return


def _chosen(shards: PerShard) -> dict[int, Join] | None:
    """How each differing result is joined, or ``None`` where one is not; gradients are computed with the joins."""
    question = shards.question
    chosen: dict[int, Join] = {}
    for leaf in question.wrong:
        if leaf.part == "gradients":
            continue
        if (join := shards.join_that_gives(leaf)) is None:
            return None
        chosen[id(leaf)] = join
    if any(by_chance(shards, leaf, chosen) for leaf in question.wrong):
        return None
    gradients = [leaf for leaf in question.wrong if leaf.part == "gradients"]
    if not gradients:
        return chosen or None
    every = []
    for leaf in question.leaves:
        if leaf.part == "outputs":
            join = chosen.get(id(leaf)) or shards.join_that_gives(leaf)
            if join is None:
                return None
            every.append(join)
    for lost, stopped in _lost_gradients(len(shards.results)):
        if explains(question.run(_joined_program(shards, every, stopped)), gradients):
            return chosen or ({id(leaf): lost for leaf in gradients} if lost is not None else None)
    return None


def _lost_gradients(count: int) -> Iterator[tuple[Join | None, set[int]]]:
    """Sets of shards that gradients may not reach, each with a name for the gradients that are left."""
    numbers = range(count)
    yield None, set()
    yield from ((Join("gradient of", number), {number}) for number in numbers)
    if count > 2:
        yield from ((Join("gradient only", number), {*numbers} - {number}) for number in numbers)


def _joined_program(shards: PerShard, how: Sequence[Join], stopped: Collection[int]) -> Callable[..., Any]:
    """The reference on each shard, its outputs joined as in ``how``; no gradients flow into the ``stopped`` shards."""
    question, layout = shards.question, shards.layout

    def program(**inputs: Any) -> Any:
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


def _in_turn(shards: PerShard, states: Sequence[Leaf]) -> Cause | None:
    """The whole step for each shard, from where the last one left the variables, and each counts 1, or 1/N."""
    question, layout, count = shards.question, shards.layout, len(shards.layout.sizes)
    running, how, remedy = PerShard.run(question, layout, fresh=False), "", ""
    if running is None or not explains(running.results[-1], states):
        running, how, remedy = _in_shares(question, layout), f" and with 1/{count} of the gradient", AVERAGED
        outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
        if running is None or not (
            explains(running.results[-1], states) and all(running.join_that_gives(leaf) for leaf in outputs)
        ):
            return None
    elif (statistics := _batch_statistics(shards)) is not None:
        return statistics
    return Cause(
        f"the training step ran once for each of the {count} shards, one after the other{how}, instead of once "
        "for the batch",
        place_of(question, states[0]) or layout.place,
        next_step=remedy,
    )


def _in_shares(question: Question, layout: Layout) -> PerShard | None:
    """The reference for each shard in turn, with 1/N of its gradients or, without an optimizer, of its updates."""
    share = 1 / len(layout.sizes)

    def apply(original: Callable[..., Any], optimizer: Any, grads: Any, variables: Any = None) -> Any:
        return original(optimizer, scaled(grads, share), variables)

    def write(variable: Any, value: Any, perform: Callable[[Any], Any]) -> Any:
        before = variable.read_value()
        done = perform(value)
        if variable.dtype.is_floating:
            value = before + (variable.read_value() - before) * tf.cast(share, variable.dtype)
            tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
        return done

    with applying(apply) if applied_by(question) else writes(write):
        return PerShard._run(question, layout, False)


def _batch_statistics(shards: PerShard) -> Cause | None:
    """Rows that depend on the rest of their batch, with averages that each shard moves, as batch normalisation does.

    The shards' results are those of the reference from one state: nothing that it wrote has an effect on them.
    """
    question, layout = shards.question, shards.layout
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    row_by_row = Join("concat", layout.axis)
    if not outputs or any(shards.join_that_gives(leaf) != row_by_row for leaf in outputs):
        return None
    states = [leaf for leaf in question.wrong if leaf.part == "state"]
    first = variables_text(states[:1])
    more = f" and {plural(len(states) - 1, 'more variable')}" if len(states) > 1 else ""
    return Cause(
        f"the function is not row-wise: rows of {outputs[0].name} depend on other rows of the batch, but each "
        f"shard has only its own ({sizes_text(layout.sizes)}), and updates {first}{more} with them",
        layout.place,
        next_step="join the rows first, then compute once what depends on the whole batch; batch normalisation is "
        "row-wise with training=False",
    )


def _cause(shards: PerShard, leaf: Leaf, join: Join) -> Cause:
    """Say what the join means for this result."""
    question, layout = shards.question, shards.layout
    count, name = len(layout.sizes), f"the update of {variables_text([leaf])}" if leaf.part == "state" else leaf.name
    right = shards.join_that_gives(_right(leaf))
    joined = place_of(question, leaf) or layout.place
    totals = f"add up what {name} is computed from, such as sums and counts, and compute {name} once from the totals"
    if join.name.startswith("gradient"):
        who = rows_text([join.at], "shard")
        on = layout.devices(question, [join.at])
        if join.name == "gradient of":
            return Cause(f"{who}{on} is missing from the gradients", layout.place)
        return Cause(f"the gradients are those of {who}{on} alone", layout.place)
    if join.name == "only" or join.name in WITHOUT:
        who = _shard(question, layout, join.at)
        if join.name == "only":
            others = "part of the other shard is" if count == 2 else f"parts of the other {count - 1} shards are"
            return Cause(f"{name} includes only {who}; the {others} lost", joined, at_join=True)
        return Cause(f"the part of {who} is missing from {name}{alone(join.name)}", joined, at_join=True)
    if join.name == "mean":
        if right is not None and right.name == "weighted":
            return Cause(
                f"{name} is a mean of means of uneven shards: {sizes_text(layout.sizes)} have equal weight",
                joined,
                next_step="weight each shard's mean by its number of rows, or divide the sum by the number of all rows",
            )
        if right is not None and right.name == "sum":
            return Cause(f"{name} is {count} times too small: the sums of {count} shards are averaged", joined)
        return Cause(
            f"{name} is averaged over shards, but in the reference it is not a mean over rows: the average of the "
            f"{count} shards' results is not the result of the batch",
            joined,
            next_step=totals,
        )
    if join.name == "weighted":
        return Cause(
            f"{name} is averaged over shards, weighted by their rows, but in the reference it is not a mean over rows: "
            f"the weighted average of the {count} shards' results is not the result of the batch",
            joined,
            next_step=totals,
        )
    if join.name == "sum":
        if leaf.part == "state" and written(question, leaf) == count:
            return Cause(
                f"{variables_text([leaf])} is updated {count} times, once with each shard's gradient, instead of once "
                "for the batch",
                joined,
                next_step="average the shards' gradients first, and apply them once",
            )
        if right is not None and right.name in ("mean", "weighted"):
            return Cause(
                f"{name} is summed over {count} shards, but each shard's value is a mean: about {count} times "
                "too large",
                joined,
                next_step="average over the shards, weighted by their rows",
            )
        return Cause(f"{name} is summed over {count} shards, but the sum is not the batch's result", joined)
    if join.name == "twice":
        who = _shard(question, layout, join.at)
        return Cause(f"the part of {who} is counted twice in {name}", joined)
    if join.name in ("max", "min"):
        single = "" if _several(leaf) else ", that is, the result of one shard only"
        return Cause(f"{name} is the {join.name}imum over the shards' results{single}", joined)
    if join.name in ("concat", "stack") and (join.name == "stack" or join.at != layout.axis):
        how = f"joined along axis {join.at}" if join.name == "concat" else f"stacked along a new axis {join.at}"
        text = f"{name} is {how}, but the batch is split along axis {layout.axis}"
        return Cause(text, joined, next_step=f"join with tf.concat along axis {layout.axis}")
    return _not_row_wise(question, layout, leaf, joined)


def _shard(question: Question, layout: Layout, number: int) -> str:
    """A shard with its device, or, of other parts than one for each device, its rows."""
    if len(layout.shards) > len(question.devices):
        return rows_text(layout.shards[number])
    return f"shard {number}{layout.devices(question, [number])}"


def writes_matter(question: Question, layout: Layout) -> bool:
    """Whether the shards' results would be others if the reference did not write to its variables."""
    with writes(lambda variable, *_: variable):
        shards = PerShard._run(question, layout, True)
    return shards is None or not all(shards.join_that_gives(leaf) for leaf in question.wrong if leaf.part == "outputs")


def _not_row_wise(question: Question, layout: Layout, leaf: Leaf, joined: str | None) -> Cause:
    names = question.input_names
    outputs = [each for each in question.wrong if each.part == "outputs"]
    right = [_right(each) for each in outputs]
    if layout.seen and len(layout.cuts) > 1:
        for index in layout.cuts:
            before, shards = PerShard.run(question, layout), PerShard.run(question, layout.without(index))
            if before is None or shards is None:
                continue
            joins = [shards.join_that_gives(each) for each in right]
            if (
                None not in joins
                and joins == [before.join_that_gives(each) for each in outputs]
                # If what is still cut has no effect, each shard gives the whole result, and there is nothing to join.
                and not all(each.explained_by(each.of(result)) for each in right for result in shards.results)
            ):
                return Cause(
                    f"every row of the result needs all of {names[index]}, but each shard sees only "
                    f"{len(layout.cuts[index][1][0])} of the {sum(map(len, layout.cuts[index][1]))} rows of "
                    f"{names[index]}",
                    layout.place,
                    next_step=f"give all of {names[index]} to every shard (broadcast=({names[index]!r},) in "
                    "make_parallel)",
                )
    if question.seen_reference.writes and writes_matter(question, layout):
        return Cause(
            "each shard takes a training step of its own: it updates its copy of the variables with its own gradient, "
            "not with the average over all shards",
            joined,
            next_step="average the gradients over the shards before the update",
        )
    if reach := reach_of(question, layout, outputs):
        unit = "position" if layout.axis else "row"
        return Cause(
            f"each shard lacks {unit}s of its neighbours: {leaf.name} differs only {beside(reach, layout.axis)}, and "
            f"{names[layout.main]} is split along axis {layout.axis}",
            joined,
            next_step=f"give each shard {plural(reach, f'more {unit}')} from each neighbouring shard, and drop the "
            f"results for these extra {unit}s",
        )
    if layout.axis != 0:
        return Cause(
            f"{names[layout.main]} is split along axis {layout.axis} into {len(layout.sizes)} parts, but a result "
            f"depends on all of axis {layout.axis}, or on positions along it; the rows of the batch are along axis 0",
            layout.place,
            next_step="split along axis 0",
        )
    if _only_on_rows_before(question, layout):
        return Cause(
            f"the function is not row-wise: rows of {leaf.name} depend on rows before them, but each shard starts over "
            f"({sizes_text(layout.sizes)}), without the state, the carry or the offset of the shards before it",
            layout.place,
            next_step="start each shard with the state, carry or offset with which the shard before it ends",
        )
    return Cause(
        f"the function is not row-wise: rows of {leaf.name} depend on other rows of the batch, but each shard "
        f"has only its own ({sizes_text(layout.sizes)})",
        layout.place,
        next_step="join the rows first, then compute once what depends on the whole batch",
    )


def _only_on_rows_before(question: Question, layout: Layout) -> bool:
    """Whether the reference gives the same first rows when it has no others, and others where the order is another one.

    These are the rows of the first shard and some more.
    """
    count = layout.sizes[0] + layout.sizes[1] // 2
    if layout.axis or layout.covered != list(range(layout.rows)) or layout.sizes[1] < 2:
        return False
    rows = {index: (axis, list(chain(*shards))[:count]) for index, (axis, shards) in layout.cuts.items()}
    inputs = question.with_leaves(with_rows(question.reference.leaves(), rows))
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    first = [
        replace(leaf, found=leaf.expected[:count], expected=None, wrong=False)
        for leaf in outputs
        if leaf.expected is not None and leaf.expected.shape[:1] == (layout.rows,)
    ]
    if len(first) < len(outputs) or not explains(question.run(inputs=inputs, gradients=False), first):
        return False
    # The largest of all rows may be among the first ones. What is the same in any order depends on no rows before.
    back = {index: (axis, list(chain(*shards))[::-1]) for index, (axis, shards) in layout.cuts.items()}
    reverse = [
        replace(leaf, found=leaf.expected[::-1], expected=None, wrong=False)
        for leaf in outputs
        if leaf.expected is not None
    ]
    other = question.with_leaves(with_rows(question.reference.leaves(), back))
    return not explains(question.run(inputs=other, gradients=False), reverse)


RULE = Rule("C110", "joined-otherwise", "results of each shard alone, joined in some way", _claims, by="results")
