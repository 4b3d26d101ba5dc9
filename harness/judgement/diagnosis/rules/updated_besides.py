"""The program writes to variables to which the reference does not; without these writes all results are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from harness.judgement.diagnosis.leaves import handle_of, place_of, variables_text
from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.writing import writes


def _claims(question: Question) -> Iterator[Cause]:
    if not (states := question.wrong_states):
        return

    def handle(leaf: Leaf) -> int:
        return handle_of(question.watched[leaf.index])

    written_to, usual = question.seen.writes, question.seen_reference.writes
    more = [leaf for leaf in states if written_to[handle(leaf)] and not usual[handle(leaf)]]
    if not more:
        return
    known = {id(question.watched[leaf.index]) for leaf in more}

    def write(variable: Any, value: Any, perform: Callable[[Any], Any]) -> Any:
        return variable if id(variable) in known else perform(value)

    def program(**inputs: Any) -> Any:
        with writes(write):
            return question.parallel.fn(**inputs)

    result = question.run(program) if len(more) < len(question.wrong) else None
    if len(more) == len(question.wrong) or (result is not None and question.right_in(result)):
        are, them = ("is", "it") if len(more) == 1 else ("are", "them")
        sentence = f"{variables_text(more)} {are} updated, but the reference does not update {them}"
        yield Cause(sentence, place_of(question, more[0]))


RULE = Rule("C201", "updated-besides", "updates made too often, too rarely or by each shard", _claims, by="results")
