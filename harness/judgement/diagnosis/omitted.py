"""Steps of the reference that the program leaves out, and results that go into the wrong step."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from harness.evidence.places import place_of_call
from harness.judgement.diagnosis.layout import partitions, wrong_shards
from harness.judgement.diagnosis.leaves import explains
from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.recorded import GIVEN, MOVES, Step, named, steps_of
from harness.judgement.diagnosis.scales import place_of
from harness.judgement.diagnosis.search import searched
from harness.judgement.diagnosis.wording import listed

#: So many addends are left out, and so many outputs fed to the reference, one after the other.
_MOST = 8


def _outputs(question: Question) -> list[Leaf]:
    """The differing outputs, if nothing else differs but gradients, which follow."""
    wrong = [leaf for leaf in question.wrong if leaf.part == "outputs" and leaf.found is not None]
    return wrong if len(wrong) == sum(leaf.part != "gradients" for leaf in question.wrong) else []


def last_steps(question: Question) -> Iterator[Cause]:
    """The outputs are results that the reference goes on to compute with."""
    wrong = _outputs(question)
    if not wrong or any(np.unique(leaf.found).size < 2 for leaf in wrong):  # type: ignore[arg-type]
        return
    every = steps_of(question, question.reference)
    steps = [step for step in every if step.computes]
    made = [step for step in every if step.result is not None and step.kind not in GIVEN]
    ends = [next((step for step in reversed(made) if leaf.explained_by(step.result)), None) for leaf in wrong]
    end = ends[0] if all(ends) else None
    if end is not None and not _goes_on(question, _sources(every, end)):
        following = next((step for step in steps if set(end.outputs) & set(step.inputs)), None)
        if following is None and end.kind in MOVES:
            return  # what is moved, and not computed with, is no step before others
        more = f", starting with {named(following)}" if following is not None else ""
        yield Cause(
            f"{wrong[0].name} is the result of {named(end)}: the ops after it in the reference are left out{more}",
            place_of(question, wrong[0]),
            final=end.kind in MOVES,
        )


def _sources(steps: Sequence[Step], end: Step) -> set[str]:
    """The types of the ops that compute what a step gives, which may only move it."""
    maker = {name: step for step in steps for name in step.outputs}
    waiting, kinds = [end], set[str]()
    while waiting:
        step = waiting.pop()
        if step.kind in MOVES:
            waiting += [maker[name] for name in step.inputs if name in maker]
        elif step.kind not in GIVEN:
            kinds.add(step.kind)
    return kinds


def _goes_on(question: Question, ends: Collection[str]) -> bool:
    """Whether an op of another type than ``ends`` makes an output of the program, but for joins."""
    search = searched(question)
    waiting, seen = [name for name, leaf in search.wrong_outputs() if leaf.part == "outputs"], set[int]()
    while waiting:
        step = search.maker.get(waiting.pop())
        if step is None or id(step) in seen:
            continue
        seen.add(id(step))
        if step.kind in MOVES:
            waiting += step.inputs
        elif step.kind not in ends and step.computes:
            return True
    return False


def in_a_row(question: Question) -> Iterator[Cause]:
    """An output is computed from another output instead of from the input."""
    wrong = _outputs(question)
    outputs = [leaf for leaf in question.leaves if leaf.part == "outputs" and leaf.found is not None]
    if not wrong or not 1 < len(outputs) <= _MOST:
        return
    from_others: dict[str, tuple[str, str]] = {}
    for index, (given, array) in enumerate(zip(question.reference.leaves(), question.input_arrays, strict=True)):
        for source in outputs:
            assert source.found is not None
            if array is None or (array.shape, array.dtype) != (source.found.shape, source.found.dtype):
                continue
            import tensorflow as tf

            leaves = question.reference.leaves()
            leaves[index] = tf.constant(source.found, given.dtype)
            result = question.run(inputs=question.with_leaves(leaves), gradients=False)
            for leaf in wrong:
                if result is not None and leaf is not source and leaf.explained_by(leaf.of(result)):
                    from_others.setdefault(leaf.name, (source.name, question.input_names[index]))
    if len(from_others) == len(wrong):
        source_name, name = from_others[wrong[0].name]
        yield Cause(
            f"{wrong[0].name} is computed from {source_name} instead of from {name}: parts that should run side by "
            "side run in sequence",
            place_of(question, wrong[0]),
            next_step=f"compute each output from {name}",
        )


def addend(question: Question) -> Iterator[Cause]:
    """The results are those of a sum without one of its addends."""
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
