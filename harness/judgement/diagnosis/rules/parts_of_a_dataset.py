"""The parts that ``shard`` takes of a dataset are not each part once; with each part once, results are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count as count_from
from typing import Any

from harness.evidence.places import place_of_call
from harness.judgement.diagnosis.observed import eager_functions
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.search import searched
from harness.judgement.diagnosis.wording import listed
from harness.lazy import tf


def _claims(question: Question) -> Iterator[Cause]:
    taken: list[tuple[int, int]] = []
    places: list[str | None] = []

    def note(_: int, count: Any, index: Any) -> tuple[Any, Any]:
        taken.append((int(count), int(index)))
        places.append(place_of_call())
        return count, index

    if question.only_gradients or all(step.kind != "ShardDataset" for step in searched(question).steps):
        return
    with _sharding(note):
        question.run(question.parallel.fn, gradients=False)
    count = len(taken)
    if count < 2 or sorted(taken) == [(count, index) for index in range(count)]:
        return
    with _sharding(lambda number, _, __: (count, number % count)):
        result = question.run(question.parallel.fn, gradients=False)
    if result is not None and question.right_in(result):
        found = listed([f"{index} of {parts}" for parts, index in taken])
        sentence = f"the program reads the parts {found} of a dataset; to read each of the {count} parts once"
        yield Cause(f"{sentence} makes the results right", next(filter(None, places), None), final=True)


@contextmanager
def _sharding(choose: Callable[[int, Any, Any], tuple[Any, Any]]) -> Iterator[None]:
    """Have ``choose(number, count, index)`` say what the calls of ``Dataset.shard`` in the body are given."""
    owner, numbers = tf.data.Dataset, count_from(0)
    original = owner.shard

    def shard(self: Any, num_shards: Any, index: Any, name: Any = None) -> Any:
        return original(self, *choose(next(numbers), num_shards, index), name=name)

    owner.shard = shard
    try:
        with eager_functions():
            yield
    finally:
        owner.shard = original


RULE = Rule("C115", "parts-of-a-dataset", "parts of a dataset read twice, or not at all", _claims)
