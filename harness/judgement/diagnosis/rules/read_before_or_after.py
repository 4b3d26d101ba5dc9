"""The results are computed from the variables before their update, or after it."""

from __future__ import annotations

from collections.abc import Iterator

from harness.judgement.diagnosis.leaves import explains, place_of
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.writing import writes


def _claims(question: Question) -> Iterator[Cause]:
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    if len(outputs) < len(question.wrong) or not question.seen_reference.writes:
        return
    first = question.wrong[0]
    sentence, place = f"{first.name} is computed with the variables' values from", place_of(question, first)
    with writes(lambda variable, *_: variable):
        stale = question.run(gradients=False)
    if explains(stale, question.wrong):
        yield Cause(f"{sentence} before their update", place)
        return
    question.snapshot.restore()
    try:
        question.run(gradients=False, fresh=False)
        late = question.run(gradients=False, fresh=False)
    finally:
        question.snapshot.restore()
    if explains(late, question.wrong):
        yield Cause(f"{sentence} after their update", place)


RULE = Rule(
    "C210", "read-before-or-after", "updates made too often, too rarely or by each shard", _claims, by="results"
)
