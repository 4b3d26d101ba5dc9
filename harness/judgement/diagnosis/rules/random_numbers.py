"""The differences are those of random numbers drawn shard by shard, or without a seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from harness.judgement.diagnosis.joins import PerShard
from harness.judgement.diagnosis.layout import partitions
from harness.judgement.diagnosis.leaves import explains
from harness.judgement.diagnosis.observed import draws, draws_numbers
from harness.judgement.diagnosis.question import Array, Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.runs import Result, as_result

_PER_SHARD = "random numbers are drawn once per shard instead of once for the batch"
_OWN = "each shard draws its own"
_ONCE = "draw the random numbers once for the whole batch, and split them"


def _claims(question: Question) -> Iterator[Cause]:
    if not question.seen.random:
        return
    place = next((place for _, _, place in question.seen.random if place), None)
    what = draws(question.seen)
    if question.unsteady:
        yield Cause(
            f"random numbers are drawn without a seed that is set before each call, so that two runs differ: {what}",
            None if place and place in what else place,
            next_step="draw the random numbers once for the whole batch from a seeded generator, and split them",
        )
        return
    for layout in partitions(question):
        for fresh, how in ((True, "every shard draws the same random numbers"), (False, _OWN)):
            shards = PerShard.run(question, layout, fresh=fresh)
            if shards is None or not all(
                leaf.part == "gradients" or shards.join_that_gives(leaf) is not None for leaf in question.wrong
            ):
                continue
            yield Cause(f"{_PER_SHARD} ({how}): {what}", next_step=_ONCE)
            return
    yield from _of_another_seed(question, what)


def _of_another_seed(question: Question, what: str) -> Iterator[Cause]:
    """The results are the reference's with the numbers that the program drew in the place of its own."""
    own, wanted = question.seen.drawn, question.seen_reference.drawn
    count = len(own) // len(wanted) if wanted else 0
    if not count or len(own) != count * len(wanted) or any(leaf.part != "outputs" for leaf in question.wrong):
        return
    # Each shard draws all of its numbers before the next one does.
    parts = [own[index :: len(wanted)] for index in range(len(wanted))]
    if any(not part[0].ndim for part in parts if count > 1):
        return
    numbers = [part[0] if count == 1 else np.concatenate(part) for part in parts]
    if any(number.shape != array.shape for number, array in zip(numbers, wanted, strict=True)):
        return
    if explains(_with_numbers(question, numbers), question.wrong):
        seeded = "random numbers are drawn with a different seed from the reference's"
        yield Cause(
            f"{seeded if count == 1 else f'{_PER_SHARD} ({_OWN})'}: {what}",
            next_step="use the same seed in both programs" if count == 1 else _ONCE,
        )


def _with_numbers(question: Question, numbers: Sequence[Array]) -> Result | None:
    """The reference's results with these random numbers; ``None`` where they cannot be put in."""
    import tensorflow as tf

    waiting = list(numbers)

    def on_op(kind: str, _: Any, __: Any, outputs: Any, graph: Any) -> Any:
        if graph is None or not draws_numbers(kind) or kind == "RngReadAndSkip" or not waiting:
            return None
        return [tf.constant(waiting.pop(0)), *outputs[1:]]

    raw = question.in_graph(question.reference.fn, on_op, loops=True)
    return None if raw is None or waiting else as_result(raw, question.watched)


RULE = Rule("C601", "random-numbers", "random numbers", _claims)
