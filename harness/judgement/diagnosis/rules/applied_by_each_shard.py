"""The optimizer gets each shard's gradients in turn, or joins them in the wrong way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from harness.judgement.diagnosis.joins import WITHOUT, Join, PerShard, alone, shard_leaves
from harness.judgement.diagnosis.layout import Layout, partitions
from harness.judgement.diagnosis.leaves import explains, handle_of, place_of, variables_text
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.terms import once_per_shard
from harness.judgement.diagnosis.writing import AVERAGED, Applied, applied_by, scaled
from harness.judgement.runs import Result
from harness.lazy import tf

_DENSE = (
    "the optimizer gets dense gradients; the reference's optimizer gets IndexedSlices with the same sums, and applies "
    "rows with the same index one by one"
)
_ALIKE = "make both programs pass dense gradients to the optimizer, or both IndexedSlices"


def _claims(question: Question) -> Iterator[Cause]:
    states = question.wrong_states
    if all(leaf.explained_by(leaf.start) for leaf in states):
        return  # what is left alone says nothing of how often the optimizer was applied, and to what
    for layout in partitions(question):
        gathered = _gathered(question, layout)
        if not gathered:
            continue
        count = len(layout.sizes)
        place = place_of(question, states[0]) or layout.place
        steps = [(1.0, "for each shard"), (1 / count, f"with each shard's gradients multiplied by 1/{count}")]
        # One step of plain gradient descent with the sum gives the same as one step for each shard.
        once = len(applied_by(question, question.parallel)) == 1
        for factor, how in [] if once else steps:
            in_turn = _applied(question, [(each[0], scaled(each[1], factor), each[2]) for each in gathered])
            if explains(in_turn, states) and _outputs_follow(question, layout):
                yield Cause(
                    f"the optimizer is applied {count} times, once {how}, instead of once for the batch",
                    place,
                    next_step=AVERAGED,
                )
                return
        for join, sentence in (
            (Join("sum"), ""),
            (
                Join("mean"),
                "the shards' gradients have equal weight although the shards differ in size"
                if len(set(layout.sizes)) > 1
                else _not_that_of_the_batch(question, layout, "average", "averaged"),
            ),
            *((Join("only", number), f"the update uses shard {number} alone") for number in range(count)),
            *(
                (Join(name, number), f"the part of shard {number} is missing from the update{alone(name)}")
                for name in WITHOUT
                for number in range(count)
            ),
        ):
            joined = _joined(gathered, join, layout.sizes)
            if joined is not None:
                result = _applied(question, [joined])
                if explains(result, states) and _outputs_follow(question, layout):
                    own = applied_by(question)
                    if len(own) == 1 and _equal(joined[1], own[0][1]):
                        # Then nothing is wrong with the sum or the mean, but with what the optimizer makes of it.
                        if any(isinstance(grad, tf.IndexedSlices) for grad in own[0][1]):
                            yield Cause(_DENSE, place, next_step=_ALIKE)
                        return
                    sentence = sentence or _added_up(question, layout, gathered, joined[1])
                    yield Cause(_only_in(question, result, joined[2]) + sentence, place)
                    return


def _only_in(question: Question, result: Result | None, variables: Any) -> str:
    """Of which variables a sentence is true, if it is not true of all that the optimizer updates."""
    handles = {handle_of(variable) for variable in variables}
    right = [leaf for leaf in question.leaves if leaf.part == "state" and leaf not in question.wrong]
    right = [leaf for leaf in right if handle_of(question.watched[leaf.index]) in handles]
    if not right or explains(result, right):
        return ""
    return f"for {variables_text(question.wrong_states)} alone, "


def _not_that_of_the_batch(question: Question, layout: Layout, joined: str, how: str) -> str:
    """Why the mean or the sum of the shards' gradients is not the gradient for the batch."""
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    if any(leaf.expected is not None and not leaf.expected.ndim for leaf in outputs):
        # Clipping a gradient changes no loss.
        return (
            f"the {joined} over the {len(layout.sizes)} shards is not the result of the batch: a row's result depends "
            "on the other rows of its shard, as where rows are normalised by the shard's own statistics"
        )
    return f"each shard's gradients are clipped or changed in another nonlinear way before they are {how}"


def _added_up(question: Question, layout: Layout, gathered: Sequence[Applied], total: Sequence[Any]) -> str:
    """Why the sum ``total`` of the shards' gradients is not the gradient for the batch."""
    sizes, count = layout.sizes, len(layout.sizes)
    own = applied_by(question)
    means = [_joined(gathered, Join(name), sizes) for name in ("mean", "weighted")]
    if len(own) != 1 or any(mean is not None and _equal(mean[1], own[0][1]) for mean in means):
        return "the shards' gradients are added up although each is a mean"
    # With one shard more, a term without rows counts once more. Other gradients do not add up at all.
    halves = replace(
        layout,
        cuts={
            leaf: (axis, (shards[0][: len(shards[0]) // 2], shards[0][len(shards[0]) // 2 :]))
            for leaf, (axis, shards) in layout.cuts.items()
        },
    )
    both = _gathered(question, halves) if min(map(len, halves.shards)) else []
    joined = _joined(both, Join("sum"), halves.sizes) if both else None
    if joined is None:
        return "the update uses the sum of the gradients of each shard by itself, which is not the batch's gradient"
    more, wanted = _differences(joined[1], gathered[0][1]), _differences(total, own[0][1])
    if _equal(more, [each / (count - 1) for each in wanted]):
        return f"a term that depends on variables alone, such as a regulariser, is {once_per_shard(count)[1]}"
    return _not_that_of_the_batch(question, layout, "sum", "added up")


def _differences(some: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    return [tf.convert_to_tensor(a) - tf.convert_to_tensor(b) for a, b in zip(some, others, strict=True)]


def _gathered(question: Question, layout: Layout) -> list[Applied]:
    """What the reference would give its optimizer for each shard; empty where it uses none, or more than one step."""
    leaves = question.reference.leaves()
    calls = []
    for number in range(len(layout.sizes)):
        calls += applied_by(question, inputs=question.with_leaves(shard_leaves(leaves, layout, number)))
        if len(calls) != number + 1:
            return []
    return calls


def _equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether gradients are the same but for their rounding errors."""
    pairs = [[tf.convert_to_tensor(each).numpy() for each in pair] for pair in zip(one, other, strict=True)]
    return all(np.allclose(a, b, rtol=1e-4, atol=1e-5 * float(np.max(np.abs(b), initial=0.0))) for a, b in pairs)


def _joined(gathered: Sequence[Applied], join: Join, sizes: Sequence[int]) -> Applied | None:
    optimizer, _, variables = gathered[0]
    grads = []
    for parts in zip(*(grads for _, grads, _ in gathered), strict=True):
        value = join.of([tf.convert_to_tensor(part).numpy() for part in parts], sizes)
        if value is None:
            return None
        grads.append(tf.constant(value))
    return optimizer, grads, variables


def _applied(question: Question, calls: Sequence[Applied]) -> Result | None:
    """The state after the optimizer got these gradients in turn."""

    def run(**_: Any) -> Any:
        for optimizer, grads, variables in calls:
            optimizer.apply(grads, variables)
        return ()

    return question.run(run, gradients=False)


def _outputs_follow(question: Question, layout: Layout) -> bool:
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    shards = PerShard.run(question, layout) if outputs else None
    return not outputs or (shards is not None and all(map(shards.join_that_gives, outputs)))


RULE = Rule(
    "C203", "applied-by-each-shard", "updates made too often, too rarely or by each shard", _claims, by="results"
)
