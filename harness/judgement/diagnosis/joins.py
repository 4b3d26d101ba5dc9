"""The reference applied to each shard, and the ways to make one result of what the shards give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.judgement.diagnosis.layout import Layout
from harness.judgement.diagnosis.question import Array, Leaf, Question
from harness.judgement.runs import Result
from harness.judgement.tolerance import epsilon_of
from harness.judgement.values import wide


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
        numbers = list(map(wide, parts))
        if self.name in ("max", "min"):
            value = getattr(np, self.name)(numbers, axis=0)
        else:
            weights = self._weights(sizes)
            value = sum(part * weight for part, weight in zip(numbers, weights, strict=True) if weight)
        return np.asarray(value).astype(first.dtype)

    def _weights(self, sizes: Sequence[int]) -> list[float]:
        """What each part is multiplied with before they are added up."""
        how, _, without = self.name.partition(" ")
        if how in ("only", "twice"):
            return [float(how == "twice") + (at == self.at) for at in range(len(sizes))]
        every = list(sizes) if how == "weighted" else [1] * len(sizes)
        kept = [0 if without and at == self.at else each for at, each in enumerate(every)]
        whole = 1 if how == "sum" else sum(kept if without == "of the others" else every)
        return [each / whole for each in kept]

    def tensor(self, parts: Sequence[Any], sizes: Sequence[int]) -> Any:
        """The same of tensors, for gradients."""
        import tensorflow as tf

        if self.name == "concat":
            return tf.concat(list(parts), axis=self.at)
        if self.name == "stack":
            return tf.stack(list(parts), axis=self.at)
        if self.name in ("max", "min"):
            return getattr(tf, f"reduce_{self.name}")(tf.stack(list(parts)), axis=0)
        weights = self._weights(sizes)
        return tf.add_n([part * tf.cast(weight, part.dtype) for part, weight in zip(parts, weights, strict=True)])


#: Joins that leave one shard out: added up, divided by the number of all shards or rows, or of the other ones.
WITHOUT = ("sum without", "mean without", "weighted without", "mean of the others", "weighted of the others")


#: Joins that one number may be by chance.
CHANCES = frozenset({"only", *WITHOUT, "twice", "max", "min"})


def alone(name: str) -> str:
    """What a join that leaves a shard out does with the other ones, to be said after that."""
    return ": only the others are averaged" if name.endswith("of the others") else ""


def joins(parts: Sequence[Array], leaf: Leaf) -> Iterator[Join]:
    """Ways to join, the likeliest first."""
    rank = parts[0].ndim
    yield from (Join("concat", axis) for axis in range(rank))
    yield from (Join(name) for name in ("mean", "sum", "weighted"))
    shares = leaf.part == "state" or not rank or all(part.shape == parts[0].shape for part in parts)
    some = [Join(name, at) for name in ("only", *WITHOUT, "twice") for at in range(len(parts))] if shares else []
    extremes = [Join("max"), Join("min")]
    # What is added to a variable is rather the part of one shard than the largest of all.
    yield from (*some, *extremes) if leaf.part == "state" else (*extremes, *some)
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
        key = (tuple(sorted(layout.cuts.items())), fresh)
        if key in question.shards:
            known: PerShard | None = question.shards[key]
            return known
        made = question.shards[key] = cls._run(question, layout, fresh)
        return made

    @classmethod
    def _run(cls, question: Question, layout: Layout, fresh: bool) -> PerShard | None:
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
        values = [value for result in self.results if (value := leaf.of(result)) is not None]
        if len(values) < len(self.results):
            return None
        return values if leaf.start is None else [value - leaf.start for value in values]

    def join_that_gives(self, leaf: Leaf) -> Join | None:
        """The join that makes what was found."""
        parts = self.parts(leaf)
        if not parts:
            return None
        for join in joins(parts, leaf):
            value = join.of(parts, self.layout.sizes)
            if value is not None and leaf.start is not None:
                if value.shape != leaf.start.shape:
                    continue
                value = (value + leaf.start).astype(leaf.start.dtype)
            if leaf.explained_by(value):
                return join
        return None


def with_rows(leaves: Sequence[Any], rows: Mapping[int, tuple[int, Sequence[int]]]) -> list[Any]:
    """The leaves of the inputs, some with other rows. ``rows`` maps a leaf's number to the axis and the rows on it."""
    import tensorflow as tf

    own = list(leaves)
    for index, (axis, numbers) in rows.items():
        own[index] = tf.gather(own[index], tf.constant(list(numbers), tf.int32), axis=axis)
    return own


def shard_leaves(leaves: Sequence[Any], layout: Layout, number: int) -> list[Any]:
    """The leaves of the inputs, those that are split cut down to one shard."""
    return with_rows(leaves, {index: (axis, shards[number]) for index, (axis, shards) in layout.cuts.items()})
