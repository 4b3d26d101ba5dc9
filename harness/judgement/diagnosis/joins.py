"""The reference applied to each shard, and the ways to make one result of what the shards give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.judgement.diagnosis.layout import Layout
from harness.judgement.diagnosis.question import Array, Leaf, Question
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
        if self.name in ("max", "min"):
            return np.asarray(getattr(np, self.name)(parts, axis=0))
        weights = self._weights(sizes)
        return np.asarray(sum(part * weight for part, weight in zip(parts, weights, strict=True) if weight))

    def _weights(self, sizes: Sequence[int]) -> list[float]:
        """What each part is multiplied with before they are added up."""
        how, _, part = self.name.partition(" ")
        chosen = [at for at in range(len(sizes)) if not part or at != self.at]
        whole = sum(sizes[at] for at in chosen) if part == "of the others" else sum(sizes)
        count = len(chosen) if part == "of the others" else len(sizes)
        if how == "only":
            return [float(at == self.at) for at in range(len(sizes))]
        if how == "twice":
            return [1.0 + (at == self.at) for at in range(len(sizes))]
        shares = {"sum": [1.0] * len(sizes), "mean": [1.0 / count] * len(sizes)}
        weights = shares.get(how, [size / whole for size in sizes])
        return [weight if at in chosen else 0.0 for at, weight in enumerate(weights)]

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
    return ": the others are averaged alone" if name.endswith("of the others") else ""


def joins(parts: Sequence[Array], leaf: Leaf) -> Iterator[Join]:
    """Ways to join, the likeliest first."""
    rank = parts[0].ndim
    yield from (Join("concat", axis) for axis in range(rank))
    yield from (Join(name) for name in ("mean", "sum", "weighted"))
    shares = leaf.part == "state" or not rank or all(part.shape == parts[0].shape for part in parts)
    some = (
        [Join(name, number) for name in ("only", *WITHOUT, "twice") for number in range(len(parts))] if shares else []
    )
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
