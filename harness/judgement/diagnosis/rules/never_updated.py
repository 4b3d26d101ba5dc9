"""Variables keep the values that they had before the call."""

from __future__ import annotations

from collections.abc import Iterator

from harness.judgement.diagnosis.leaves import place_of, variables_text, written
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule


def _claims(question: Question) -> Iterator[Cause]:
    if not (states := question.wrong_states):
        return
    if len(states) == len(question.wrong) and all(leaf.explained_by(leaf.start) for leaf in states):
        one = len(states) == 1
        never = f"the program never writes to {'it' if one else 'them'}"
        if written(question, states[0]):
            never = "the value stays the same" if one else "the values stay the same"
        sentence = f"{variables_text(states)} {'is' if one else 'are'} not updated: {never}"
        yield Cause(sentence, place_of(question, states[0]))


RULE = Rule("C202", "never-updated", "updates made too often, too rarely or by each shard", _claims, by="results")
