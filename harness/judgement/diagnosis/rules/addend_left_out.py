"""The results are those of a sum without one of its addends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.evidence.places import place_of_call
from harness.judgement.diagnosis.layout import partitions, wrong_shards
from harness.judgement.diagnosis.leaves import explains, place_of
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import listed

#: So many addends are left out, and so many outputs fed to the reference, one after the other.
_MOST = 8


def _claims(question: Question) -> Iterator[Cause]:
    wrong = [leaf for leaf in question.wrong if leaf.part != "gradients" and leaf.found is not None]
    layout = next((each for each in partitions(question) if each.seen), None)
    if layout is not None and len(wrong_shards(question, layout)) < len(layout.shards):
        return  # the sums of some shards have all addends
    for number in range(_MOST if wrong else 0):
        without = _Without(number)
        result = question.result_in_graph(question.reference.fn, without.on_op)
        if result is None or without.seen <= number:
            return
        if explains(result, wrong):
            yield Cause(
                f"an addend is left out of {listed([leaf.name for leaf in wrong])}: the reference also adds "
                f"{without.addend}",
                place_of(question, wrong[0]),
            )
            return


class _Without:
    """While a graph is built: one addend of a sum of several floating tensors, which is left out."""

    def __init__(self, number: int) -> None:
        self.number, self.seen, self.addend = number, 0, ""

    def on_op(self, kind: str, inputs: Any, _: Any, outputs: Any, graph: Any) -> Any:
        if graph is None or kind not in ("AddN", "AddV2") or not outputs[0].dtype.is_floating:
            return None
        first = self.seen
        self.seen += len(inputs)
        if not first <= self.number < self.seen:
            return None
        left_out = inputs[self.number - first]
        what = "an input" if left_out.op.type == "Placeholder" else f"the result of {left_out.op.type}"
        place = place_of_call()
        self.addend = f"{what} at {place}" if place else what
        return [outputs[0] - left_out]


RULE = Rule("C410", "addend-left-out", "an addend left out", _claims)
