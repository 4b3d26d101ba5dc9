"""The whole training step runs twice, or once per device, on the whole batch."""

from __future__ import annotations

from collections.abc import Iterator

from harness.judgement.diagnosis.leaves import explains, place_of, variables_text
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule


def _claims(question: Question) -> Iterator[Cause]:
    if not (states := question.wrong_states):
        return
    if len(states) < len(question.wrong):
        return
    question.snapshot.restore()
    try:
        for times in range(2, max(3, len(question.devices) + 1)):
            if times == 2 and question.run(gradients=False, fresh=False) is None:
                return
            result = question.run(gradients=False, fresh=False)
            if result is None:
                return
            if explains(result, question.wrong):
                are, often = "is" if len(states) == 1 else "are", "twice" if times == 2 else f"{times} times"
                sentence = f"{variables_text(states)} {are} updated {often} instead of once"
                yield Cause(sentence, place_of(question, states[0]))
                return
    finally:
        question.snapshot.restore()


RULE = Rule("C204", "step-repeated", "updates made too often, too rarely or by each shard", _claims, by="results")
