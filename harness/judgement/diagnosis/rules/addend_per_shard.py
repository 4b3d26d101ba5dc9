"""An addend of variables alone, such as a bias, counts once per shard in the outputs, or is left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.judgement.diagnosis.leaves import explains, place_of
from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.rules.term_per_shard import ONCE, SUMS, Terms, once_per_shard
from harness.judgement.runs import Result

_ADDENDS = SUMS | {"BiasAdd"}
#: So many sums are tried.
_MOST_SUMS = 8


def _claims(question: Question) -> Iterator[Cause]:
    count = len(question.devices)
    outputs, gradients = ([leaf for leaf in question.wrong if leaf.part == part] for part in ("outputs", "gradients"))
    if not outputs or len(outputs) + len(gradients) < len(question.wrong):
        return
    for number in range(_MOST_SUMS):
        for factor, how in (once_per_shard(count), (0.0, "left out")):
            addends = _Addends(number, factor)
            result = question.result_in_graph(question.reference.fn, addends.on_op, gradients=bool(gradients))
            if result is None or addends.seen <= number:
                return
            if explains(result, outputs) and all(_is_followed(leaf, result, factor) for leaf in gradients):
                yield Cause(
                    f"an addend that depends on variables alone, such as a bias, is {how}",
                    place_of(question, question.wrong[0]),
                    next_step=ONCE,
                )
                return


def _is_followed(leaf: Leaf, result: Result, factor: float) -> bool:
    """Whether a gradient is that of the replaced outputs; that for the addend itself has its factor too.

    A tape does not see that a result was replaced, and gives the addend's gradient for a factor of 1.
    """
    array = leaf.of(result)
    if array is None:
        return not factor or leaf.found is None
    return any(leaf.explained_by((array * times).astype(array.dtype)) for times in (1.0, factor))


class _Addends(Terms):
    """While a graph is built: one sum of a tensor that depends on variables alone, which then counts several times."""

    def __init__(self, number: int, factor: float) -> None:
        super().__init__()
        self.number, self.factor = number, factor
        self.seen = 0

    def on_op(self, kind: str, inputs: Any, attributes: Any, outputs: Any, graph: Any) -> Any:
        super().on_op(kind, inputs, attributes, outputs, graph)
        if graph is None or not outputs or outputs[0]._id in self.free or outputs[0].shape.rank == 0:
            return None
        own = [tensor for tensor in inputs if tensor._id in self.free]
        if kind not in _ADDENDS or not own or not outputs[0].dtype.is_floating:
            return None
        self.seen += 1
        return [outputs[0] + sum(own[1:], own[0]) * (self.factor - 1.0)] if self.seen == self.number + 1 else None


RULE = Rule("C407", "addend-per-shard", "an added bias that counts once per shard, or is left out", _claims)
