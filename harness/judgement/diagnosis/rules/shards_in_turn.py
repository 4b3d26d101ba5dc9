"""The step runs for each shard in turn, from where the last one left the variables, and each counts 1/N."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from harness.judgement.diagnosis.joins import PerShard
from harness.judgement.diagnosis.layout import partitions
from harness.judgement.diagnosis.leaves import explains, place_of
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.writing import AVERAGED, applied_by, applying, scaled, writes
from harness.judgement.tolerance import epsilon_of


def _claims(question: Question) -> Iterator[Cause]:
    if not (states := question.wrong_states):
        return
    import tensorflow as tf

    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    floating = any(leaf.found is not None and epsilon_of(leaf.found.dtype) for leaf in states)
    for layout in partitions(question) if floating else ():
        share = 1 / len(layout.sizes)

        def apply(
            original: Callable[..., Any], optimizer: Any, grads: Any, variables: Any = None, share: float = share
        ) -> Any:
            return original(optimizer, scaled(grads, share), variables)

        def write(variable: Any, value: Any, perform: Callable[[Any], Any], share: float = share) -> Any:
            before = variable.read_value()
            done = perform(value)
            if variable.dtype.is_floating:
                value = before + (variable.read_value() - before) * tf.cast(share, variable.dtype)
                tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
            return done

        with applying(apply) if applied_by(question) else writes(write):
            running = PerShard._run(question, layout, False)
        if (
            running is not None
            and explains(running.results[-1], states)
            and all(running.join_that_gives(leaf) for leaf in outputs)
        ):
            yield Cause(
                f"the training step ran once for each of the {len(layout.sizes)} shards, one after the other and with "
                f"1/{len(layout.sizes)} of the gradient, instead of once for the batch",
                place_of(question, states[0]) or layout.place,
                next_step=AVERAGED,
            )
            return


RULE = Rule("C209", "shards-in-turn", "updates made too often, too rarely or by each shard", _claims, by="results")
