"""The same update of some variables is made several times, and what else differs is computed from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from harness.judgement.diagnosis.leaves import explains, handle_of, place_of, variables_text
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.writing import writes


def _claims(question: Question) -> Iterator[Cause]:
    if not (states := question.wrong_states):
        return
    often: dict[int, int] = {}
    for leaf in states if len(question.wrong) > 1 else ():
        handle = handle_of(question.watched[leaf.index])
        usual, seen = question.seen_reference.writes[handle], question.seen.writes[handle]
        if usual and seen > usual and not seen % usual:
            often[leaf.index] = seen // usual
    if not often:
        return
    times = {id(question.watched[index]): number for index, number in often.items()}

    def write(variable: Any, value: Any, perform: Callable[[Any], Any]) -> Any:
        return [perform(value) for _ in range(times.get(id(variable), 1))][-1]

    def program(**inputs: Any) -> Any:
        with writes(write):
            return question.reference.fn(**inputs)

    if explains(question.run(program), question.wrong):
        again = [leaf for leaf in states if leaf.index in often]
        usual = question.seen_reference.writes[handle_of(question.watched[again[0].index])]
        are, them = ("is", "this") if len(again) == 1 else ("are", "these")
        yield Cause(
            f"{variables_text(again)} {are} updated {often[again[0].index] * usual} times instead of "
            f"{usual if usual > 1 else 'once'}; the other differences follow from {them}",
            place_of(question, again[0]),
        )


RULE = Rule("C205", "update-repeated", "updates made too often, too rarely or by each shard", _claims, by="results")
