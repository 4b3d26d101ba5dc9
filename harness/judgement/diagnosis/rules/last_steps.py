"""The outputs are results that the reference goes on to compute with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from harness.judgement.diagnosis.leaves import outputs_alone, place_of
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.recorded import GIVEN, MOVES, Step, named, steps_of
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.search import searched


def _claims(question: Question) -> Iterator[Cause]:
    wrong = outputs_alone(question)
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


RULE = Rule("C411", "last-steps", "the last steps left out", _claims)
