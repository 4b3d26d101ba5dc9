"""An addend is left out, or, if it is of variables alone, such as a bias, counts once per shard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.evidence.places import place_of_call
from harness.judgement.diagnosis.layout import partitions, wrong_shards
from harness.judgement.diagnosis.leaves import explains, place_of
from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.terms import ONCE, SUMS, Terms, once_per_shard
from harness.judgement.diagnosis.wording import listed
from harness.judgement.runs import Result

_ADDENDS = SUMS | {"BiasAdd"}
#: So many sums, or addends, are tried.
_MOST = 8


def _claims(question: Question) -> Iterator[Cause]:
    yield from _of_variables(question)
    yield from _left_out(question)


def _of_variables(question: Question) -> Iterator[Cause]:
    """A sum whose addends of variables alone count once per shard in the outputs, or are left out."""
    outputs, gradients = ([leaf for leaf in question.wrong if leaf.part == part] for part in ("outputs", "gradients"))
    if not outputs or len(outputs) + len(gradients) < len(question.wrong):
        return
    for number in range(_MOST):
        for factor, how in (once_per_shard(len(question.devices)), (0.0, "left out")):
            addend = _Addend(number, factor, of_variables=True)
            result = question.result_in_graph(question.reference.fn, addend.on_op, gradients=bool(gradients))
            if result is None or addend.seen <= number:
                return
            if explains(result, outputs) and all(_is_followed(leaf, result, factor) for leaf in gradients):
                sentence = f"an addend that depends on variables alone, such as a bias, is {how}"
                yield Cause(sentence, place_of(question, question.wrong[0]), next_step=ONCE)
                return


def _left_out(question: Question) -> Iterator[Cause]:
    wrong = [leaf for leaf in question.wrong if leaf.part != "gradients" and leaf.found is not None]
    layout = next((each for each in partitions(question) if each.seen), None)
    if layout is not None and len(wrong_shards(question, layout)) < len(layout.shards):
        return  # the sums of some shards have all addends
    for number in range(_MOST if wrong else 0):
        addend = _Addend(number, 0.0)
        result = question.result_in_graph(question.reference.fn, addend.on_op)
        if result is None or addend.seen <= number:
            return
        if explains(result, wrong):
            names = listed([leaf.name for leaf in wrong])
            sentence = f"an addend is left out of {names}: the reference also adds {addend.name}"
            yield Cause(sentence, place_of(question, wrong[0]))
            return


def _is_followed(leaf: Leaf, result: Result, factor: float) -> bool:
    """Whether a gradient is that of the replaced outputs; that for the addend itself has its factor too.

    A tape does not see that a result was replaced, and gives the addend's gradient for a factor of 1.
    """
    array = leaf.of(result)
    if array is None:
        return not factor or leaf.found is None
    return any(leaf.explained_by((array * times).astype(array.dtype)) for times in (1.0, factor))


class _Addend(Terms):
    """While a graph is built: one addend of a floating sum, or those of variables alone, which then count otherwise."""

    def __init__(self, number: int, factor: float, *, of_variables: bool = False) -> None:
        super().__init__()
        self.number, self.factor, self.of_variables = number, factor, of_variables
        self.seen, self.name = 0, ""

    def on_op(self, kind: str, inputs: Any, attributes: Any, outputs: Any, graph: Any) -> Any:
        addends = [[tensor] for tensor in inputs] if kind in SUMS else []
        if self.of_variables:
            super().on_op(kind, inputs, attributes, outputs, graph)
            free = [tensor for tensor in inputs if tensor._id in self.free]
            whole = not outputs or outputs[0]._id in self.free or outputs[0].shape.rank == 0
            addends = [free] if kind in _ADDENDS and free and not whole else []
        if graph is None or not addends or not outputs[0].dtype.is_floating:
            return None
        first, self.seen = self.seen, self.seen + len(addends)
        if not first <= self.number < self.seen:
            return None
        own = addends[self.number - first]
        what = "an input" if own[0].op.type == "Placeholder" else f"the result of {own[0].op.type}"
        self.name = f"{what} at {place}" if (place := place_of_call()) else what
        return [outputs[0] + sum(own[1:], own[0]) * (self.factor - 1.0)]


RULE = Rule("C407", "addend-counts", "an addend left out, or a bias that counts once per shard", _claims)
