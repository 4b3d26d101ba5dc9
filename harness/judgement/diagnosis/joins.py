"""The reference run for each shard, its ops too, and the ways to make one result of what the shards give."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.judgement.diagnosis.layout import Layout, partitions
from harness.judgement.diagnosis.question import Array, Leaf, Question
from harness.judgement.diagnosis.recorded import Recording, Step, run_recorded
from harness.judgement.runs import Result, projection
from harness.judgement.tolerance import epsilon_of
from harness.judgement.values import wide

#: Joins that leave one shard out: added up, divided by the number of all shards or rows, or of the other ones.
WITHOUT = ("sum without", "mean without", "weighted without", "mean of the others", "weighted of the others")
#: Joins that one number may be by chance.
CHANCES = frozenset({"only", *WITHOUT, "twice", "max", "min"})


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
            if leaf.explained_by(self._joined(leaf, join, parts)) and not self._of_any_shard(leaf, join, parts):
                return join
        return None

    def _of_any_shard(self, leaf: Leaf, join: Join, parts: Sequence[Array]) -> bool:
        """Whether a join that leaves a shard out tells nothing of it, but that the result is off by a factor.

        It gives the same without any other shard, or the other shards alone give the right result.
        """
        if join.name not in WITHOUT:
            return False
        others = [replace(join, at=at) for at in range(len(parts)) if at != join.at]
        if all(leaf.explained_by(self._joined(leaf, other, parts)) for other in others):
            return True
        rest = self._joined(leaf, Join("mean of the others", join.at), parts)
        right = replace(leaf, found=leaf.expected, expected=leaf.found)
        return join.name != "mean of the others" and right.explained_by(rest)

    def _joined(self, leaf: Leaf, join: Join, parts: Sequence[Array]) -> Array | None:
        """The result, or the value of the variable after it; ``None`` where that has another shape."""
        value = join.of(parts, self.layout.sizes)
        if value is None or leaf.start is None:
            return value
        return None if value.shape != leaf.start.shape else (value + leaf.start).astype(leaf.start.dtype)


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


def on_shards(question: Question, *, backward: bool) -> tuple[list[Recording], list[int]]:
    """The reference's ops for the rows of each shard, and the numbers of rows; ``backward``: and their gradients."""
    layout = next(partitions(question), None)
    if layout is None:
        return [], []
    single = question.reference
    leaves = single.leaves()
    runs = []
    try:
        for number in range(len(layout.sizes)):
            inputs = question.with_leaves(shard_leaves(leaves, layout, number))
            run = replace(single, inputs=inputs, upstream=_sent_back(layout, number, single.seed), _graphs={})
            runs.append(run_recorded(question, run, gradients=backward)[0])
    except Exception as error:  # noqa: BLE001 - the user's program may refuse other inputs than its own
        question.failed.append(f"{type(error).__name__}: {error}")
        return [], []
    return runs, layout.sizes


def _sent_back(layout: Layout, shard: int, seed: int) -> Callable[[Any, int], Any]:
    """What the projection of the whole batch sends back to a shard: where it has rows, those of the shard."""
    rows = list(layout.shards[shard])

    def upstream(target: Any, number: int) -> Any:
        import tensorflow as tf

        shape = list(target.shape)
        split = layout.axis < len(shape) and shape[layout.axis] == len(rows)
        if split:
            shape[layout.axis] = layout.rows
        # Without ops, which would be taken for the program's.
        whole = projection(tf.TensorSpec(shape, target.dtype), seed + number, None)
        return tf.constant(np.take(whole.numpy(), rows, axis=layout.axis)) if split else whole

    return upstream


def groups_of(steps: Iterable[Step]) -> dict[int, list[Step]]:
    """For each step, by its id, the steps of the same lines on other devices, and itself."""
    count: Counter[Any] = Counter()
    by_key: dict[Any, list[Step]] = defaultdict(list)
    keys = []
    for step in steps:
        line = step.kind, step.gradient_of, step.places
        keys.append((*line, count[step.device, line]))
        count[step.device, line] += 1
        by_key[keys[-1]].append(step)
    return {id(step): by_key[key] for step, key in zip(steps, keys, strict=True)}
