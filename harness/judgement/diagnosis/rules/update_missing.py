"""One of several writes to a variable is not made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from harness.evidence.places import place_of_call
from harness.judgement.diagnosis.leaves import explains, handle_of, place_of, variables_text
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.writing import writes

_TIMES = {1: "once", 2: "twice"}


def _claims(question: Question) -> Iterator[Cause]:
    if not (states := question.wrong_states):
        return
    for leaf in states:
        variable = question.watched[leaf.index]
        handle = handle_of(variable)
        made, wanted = question.seen.writes[handle], question.seen_reference.writes[handle]
        for number in range(wanted if 0 < made < wanted else 0):
            without = _Without(variable, number)
            with writes(without.write):
                result = question.run(gradients=False)
            if explains(result, question.wrong):
                often, instead = (_TIMES.get(count, f"{count} times") for count in (made, wanted))
                yield Cause(
                    f"{variables_text([leaf])} is updated {often} instead of {instead}: the reference's update "
                    f"{number + 1} of {wanted}{f' ({without.place})' if without.place else ''} is missing",
                    place_of(question, leaf),
                )
                return


class _Without:
    """Leaves out one write to a variable."""

    def __init__(self, variable: Any, number: int) -> None:
        self.variable, self.left, self.place = variable, number, ""

    def write(self, variable: Any, value: Any, perform: Callable[[Any], Any]) -> Any:
        if variable is self.variable:
            self.left -= 1
            if self.left == -1:
                self.place = place_of_call() or ""
                return variable
        return perform(value)


RULE = Rule("C207", "update-missing", "updates made too often, too rarely or by each shard", _claims, by="results")
