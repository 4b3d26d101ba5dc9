"""The reference applied to each shard, and the results concatenated, averaged or added up, or some of them lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.judgement.diagnosis.layout import Layout, partitions
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.scales import place_of
from harness.judgement.diagnosis.wording import first_upper, listed, rows_text, sizes_text
from harness.judgement.diagnosis.writing import writes
from harness.judgement.runs import Result
from harness.judgement.tolerance import epsilon_of


@dataclass(frozen=True)
class Join:
    """A way to make one result of those of the shards: its name, and over what."""

    name: str
    at: int = 0

    def of(self, parts: Sequence[Array], sizes: Sequence[int]) -> Array | None:
        """The joined result; ``None`` where the parts cannot be joined so."""
        first = parts[0]
        if self.name in ("concat", "stack"):
            try:
                return np.concatenate(parts, self.at) if self.name == "concat" else np.stack(parts, self.at)
            except (ValueError, IndexError):
                return None
        if any(part.shape != first.shape for part in parts) or (
            first.dtype.kind not in "fciu" and not epsilon_of(first.dtype)
        ):
            return None
        wide = [part.astype(np.complex128 if np.iscomplexobj(part) else np.float64) for part in parts]
        value = self._number(wide, sizes)
        return None if value is None else value.astype(first.dtype)

    def _number(self, parts: list[Array], sizes: Sequence[int]) -> Array | None:
        total = np.sum(parts, axis=0)
        if self.name == "sum":
            return np.asarray(total)
        if self.name == "mean":
            return np.asarray(total / len(parts))
        if self.name == "weighted":
            return np.asarray(sum(part * size for part, size in zip(parts, sizes, strict=True)) / sum(sizes))
        if self.name == "only":
            return parts[self.at]
        if self.name == "without":
            return np.asarray(total - parts[self.at])
        if self.name == "mean without":
            return np.asarray((total - parts[self.at]) / len(parts))
        if self.name == "weighted without":
            kept = [part * size for at, (part, size) in enumerate(zip(parts, sizes, strict=True)) if at != self.at]
            return np.asarray(sum(kept) / sum(sizes))
        if self.name == "max":
            return np.asarray(np.max(parts, axis=0))
        if self.name == "min":
            return np.asarray(np.min(parts, axis=0))
        return None

    def tensor(self, parts: Sequence[Any], sizes: Sequence[int]) -> Any:
        """The same of tensors, for gradients."""
        import tensorflow as tf

        if self.name == "concat":
            return tf.concat(list(parts), axis=self.at)
        if self.name == "stack":
            return tf.stack(list(parts), axis=self.at)
        if self.name == "only":
            return parts[self.at]
        if self.name == "max":
            return tf.reduce_max(tf.stack(list(parts)), axis=0)
        if self.name == "min":
            return tf.reduce_min(tf.stack(list(parts)), axis=0)
        shares = {"sum": [1.0] * len(parts), "mean": [1.0 / len(parts)] * len(parts)}
        weights = shares.get(self.name, [size / sum(sizes) for size in sizes])
        return tf.add_n([part * tf.cast(weight, part.dtype) for part, weight in zip(parts, weights, strict=True)])


def joins(parts: Sequence[Array], leaf: Leaf) -> Iterator[Join]:
    """Ways to join, the likeliest first."""
    rank = parts[0].ndim
    yield from (Join("concat", axis) for axis in range(rank))
    yield from (Join(name) for name in ("mean", "sum", "weighted", "max", "min"))
    if leaf.part == "state" or not rank or all(part.shape == parts[0].shape for part in parts):
        for name in ("only", "without", "mean without", "weighted without"):
            yield from (Join(name, number) for number in range(len(parts)))
    yield from (Join("stack", axis) for axis in range(rank + 1))


@dataclass
class PerShard:
    """The reference's results for each shard of a layout."""

    question: Question
    layout: Layout
    results: list[Result]

    @classmethod
    def run(cls, question: Question, layout: Layout, *, fresh: bool = True) -> PerShard | None:
        """Run the reference for each shard, from the same state, or each from the state that the last one left."""
        leaves = question.reference.leaves()
        results: list[Result] = []
        question.snapshot.restore()
        try:
            for number in range(len(layout.shards)):
                inputs = question.with_leaves(shard_leaves(leaves, layout, number))
                result = question.run(inputs=inputs, gradients=False, fresh=fresh)
                if result is None or (results and len(result.outputs) != len(results[0].outputs)):
                    return None
                results.append(result)
        finally:
            question.snapshot.restore()
        return cls(question, layout, results)

    def parts(self, leaf: Leaf) -> list[Array] | None:
        """The leaf's values of the shards; of a variable, how much each changes it."""
        values = [leaf.of(result) for result in self.results]
        if any(value is None for value in values):
            return None
        known = [value for value in values if value is not None]
        return [value - leaf.start for value in known] if leaf.start is not None else known

    def join_that_gives(self, leaf: Leaf, wanted: Leaf) -> Join | None:
        """The join that makes what ``wanted`` has found."""
        parts = self.parts(leaf)
        if not parts:
            return None
        for join in joins(parts, leaf):
            value = join.of(parts, self.layout.sizes)
            if value is not None and leaf.start is not None:
                if value.shape != leaf.start.shape:
                    continue
                value = (value + leaf.start).astype(leaf.start.dtype)
            if wanted.explained_by(value):
                return join
        return None


def shard_leaves(leaves: Sequence[Any], layout: Layout, number: int) -> list[Any]:
    """The leaves of the inputs, those that are split cut down to one shard."""
    import tensorflow as tf

    own = list(leaves)
    for index, (axis, shards) in layout.cuts.items():
        own[index] = tf.gather(own[index], list(shards[number]), axis=axis)
    return own


def _right(leaf: Leaf) -> Leaf:
    """The leaf as if the reference's value had been found."""
    return replace(leaf, found=leaf.expected, wrong=False)


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
            first = next(leaf for leaf in wrong if id(leaf) in chosen)
            yield _cause(question, layout, shards, first, chosen[id(first)])
            return
        if any(leaf.part == "state" for leaf in wrong):
            running = PerShard.run(question, layout, fresh=False)
            if running is not None and _in_turn(question, running):
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
            structure = question.reference.fn(**own)
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
            return Cause(
                f"{who}{on} is missing in the gradients: what it computes is outside of the tape", layout.place, wrong
            )
        return Cause(f"the gradients count {who}{on} alone", layout.place, wrong)
    if join.name in ("only", "without", "mean without", "weighted without"):
        who = f"shard {join.at}{layout.devices(question, [join.at])}"
        if join.name == "only":
            return Cause(
                f"{name} counts {who} alone; the parts of the other {count - 1} shards are lost", joined, wrong
            )
        return Cause(f"the part of {who} is missing in {name}", joined, wrong)
    if join.name == "mean":
        if (right is not None and right.name == "weighted") or (right is None and _weighted(shards, leaf)):
            return Cause(
                f"{name} is a mean of means of uneven shards: {split} count alike",
                joined,
                wrong,
                "weigh each shard's mean by its number of rows, or divide the sum by the number of all rows",
            )
        if right is not None and right.name == "sum":
            return Cause(f"{name} is {count} times too small: sums of {count} shards are averaged", joined, wrong)
        return Cause(
            f"{name} is averaged over shards, but it is no mean over rows: the average of {count} shards' results is "
            "not the batch's",
            joined,
            wrong,
            "add up what it is made of over the shards, and compute it once from that",
        )
    if join.name == "weighted":
        return Cause(
            f"{name} is averaged over shards, weighted by their rows, but it is no mean over rows", joined, wrong
        )
    if join.name == "sum":
        if right is not None and right.name in ("mean", "weighted"):
            return Cause(
                f"{name} is added up over {count} shards, but each shard's is a mean: about {count} times too large",
                joined,
                wrong,
                "average over the shards, weighted by their rows",
            )
        return Cause(f"{name} is added up over {count} shards, but the sum is not the batch's result", joined, wrong)
    if join.name in ("max", "min"):
        return Cause(f"{name} is the {join.name}imum over the shards' results", joined, wrong)
    if join.name in ("concat", "stack") and (join.name == "stack" or join.at != layout.axis):
        how = f"joined along axis {join.at}" if join.name == "concat" else f"stacked along a new axis {join.at}"
        text = f"{name} is {how}, but the batch is split along axis {layout.axis}"
        return Cause(text, joined, wrong, f"join with tf.concat along axis {layout.axis}")
    return _not_row_wise(question, layout, leaf, joined)


def _weighted(shards: PerShard, leaf: Leaf) -> bool:
    parts = shards.parts(leaf)
    value = Join("weighted").of(parts, shards.layout.sizes) if parts else None
    return _right(leaf).explained_by(value)


def writes_matter(question: Question, layout: Layout) -> bool:
    """Whether the shards' results would be others if the reference did not write to its variables."""
    with writes(lambda variable, *_: variable):
        shards = PerShard.run(question, layout)
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
            shards = PerShard.run(question, rest)
            if shards is not None and all(
                shards.join_that_gives(each, _right(each)) for each in wrong if each.part == "outputs"
            ):
                return Cause(
                    f"{names[index]} is split like a batch, but every row needs the whole of it: each shard sees "
                    f"{len(layout.cuts[index][1][0])} of its {sum(map(len, layout.cuts[index][1]))} rows",
                    layout.place,
                    wrong,
                    f"give the whole of {names[index]} to every shard (broadcast=({names[index]!r},) in make_parallel)",
                )
    if question.seen_reference.writes and writes_matter(question, layout):
        return Cause(
            "each shard takes a training step of its own: its copy of the variables is updated with its own gradient, "
            "not with the average of all shards",
            joined,
            wrong,
            "average the gradients over the shards before the update",
        )
    if layout.axis != 0:
        return Cause(
            f"{names[layout.main]} is split along axis {layout.axis}, into {len(layout.sizes)} parts, but a result "
            "depends on all of that axis; the batch is axis 0",
            layout.place,
            wrong,
            "split along axis 0",
        )
    return Cause(
        f"the function is not row-wise: {leaf.name} of a row depends on the other rows of its batch, but each shard "
        f"has only its own ({sizes_text(layout.sizes)})",
        layout.place,
        wrong,
        "compute what spans the batch once, on the joined rows",
    )


def rows_left_out(question: Question) -> Iterator[Cause]:
    """The results are those of fewer rows than there are, or of rows in other numbers."""
    leaves = question.reference.leaves()
    seen: list[tuple[int, ...]] = []
    for layout in partitions(question):
        covered = tuple(layout.covered)
        if layout.axis or sorted(covered) == list(range(layout.rows)) or covered in seen or not layout.seen:
            continue
        seen.append(covered)
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
        if what:
            sentence = f"{listed(what)}: the batch is split into {sizes_text(layout.sizes)}"
            yield Cause(first_upper(sentence), layout.place, tuple(question.wrong))
            return
