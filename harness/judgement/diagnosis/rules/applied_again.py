"""The optimizer applies the right gradients several times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from harness.judgement.diagnosis.leaves import explains, place_of
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.writing import applied_by, applying


def _claims(question: Question) -> Iterator[Cause]:
    if not (states := question.wrong_states):
        return
    if len(states) < len(question.wrong) or not applied_by(question):
        return
    for times in range(2, max(3, len(question.devices) + 1)):

        def again(original: Callable[..., Any], optimizer: Any, *given: Any, often: int = times) -> Any:
            return [original(optimizer, *given) for _ in range(often)][-1]

        with applying(again):
            result = question.run(gradients=False)
        if explains(result, states):
            sentence = f"the optimizer applies the same gradients {times} times instead of once"
            yield Cause(sentence, place_of(question, states[0]))
            return


RULE = Rule("C206", "applied-again", "updates made too often, too rarely or by each shard", _claims, by="results")
