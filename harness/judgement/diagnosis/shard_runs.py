"""The reference once more for the rows of each shard, and the steps of one line on all devices."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from harness.judgement.diagnosis.joins import shard_leaves
from harness.judgement.diagnosis.layout import Layout, partitions
from harness.judgement.diagnosis.question import Question
from harness.judgement.diagnosis.recorded import Recording, Step, run_recorded
from harness.judgement.runs import projection


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
