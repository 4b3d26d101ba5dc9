"""The weight decay of an optimizer is a part of its gradients, is missing, or counts once per shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from harness.judgement.diagnosis.leaves import explains, place_of
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.writing import applying


def _claims(question: Question) -> Iterator[Cause]:
    if not (states := question.wrong_states):
        return
    count = len(question.devices)
    decays: set[float] = set()
    for factor, in_gradient, how in (
        (0.0, True, "is added to the gradients (L2) instead of being taken from the weights"),
        (0.0, False, "is missing"),
        (float(count), False, f"counts {count} times, once per shard"),
    ):

        def apply(
            original: Callable[..., Any],
            optimizer: Any,
            grads: Any,
            variables: Any = None,
            factor: float = factor,
            in_gradient: bool = in_gradient,
        ) -> Any:
            decay = getattr(optimizer, "weight_decay", None)
            if not isinstance(decay, float) or not decay or variables is None:
                return original(optimizer, grads, variables)
            decays.add(decay)
            if in_gradient:
                pairs = zip(grads, variables, strict=True)
                grads = [grad if grad is None else grad + decay * variable for grad, variable in pairs]
            optimizer.weight_decay = decay * factor or None
            try:
                return original(optimizer, grads, variables)
            finally:
                optimizer.weight_decay = decay

        with applying(apply):
            result = question.run(gradients=False)
        if not decays or result is None:
            return
        if explains(result, question.wrong):
            sentence = f"the optimizer's weight decay of {min(decays):g} {how}"
            yield Cause(sentence, place_of(question, states[0]))
            return


RULE = Rule("C208", "weight-decay", "updates made too often, too rarely or by each shard", _claims, by="results")
