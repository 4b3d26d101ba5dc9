"""Runs an op in another way, and every op after it again. If the results are then right, the op is the cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from harness.judgement.diagnosis.question import Array
from harness.judgement.diagnosis.recorded import Step, equal, named
from harness.judgement.diagnosis.replays import run_again, run_from
from harness.judgement.diagnosis.wording import constant_texts

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search

#: Ops with the same inputs. To join parts, a program may use one of them by mistake for another.
_ALIKE = (
    ("Sum", "Max", "Min", "Mean", "Prod"),
    ("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"),
)
#: How the sentence about it ends.
MENDED = "makes the results right"
#: How many ways are tried at most.
_MOST = 16
#: A step, the step to run in its place, what that reads, and how the sentence about it begins.
_Way = tuple[Step, Step, list[Array | None], str]


def mended(search: Search) -> tuple[Step, str] | None:
    """Find an op that makes the results right with what it reads on the other devices, or with another op in its place.

    Returns the op and the text that says so.
    """
    wrong = {leaf.part for leaf in search.question.wrong}
    if "state" in wrong or "outputs" not in wrong:
        return None  # writes to variables are not made again
    for step, other, inputs, text in islice(chain(_as_on_other_devices(search), _other_joins(search)), _MOST):
        made = run_again(other, inputs, other.given)
        if made is not None and _right_with(search, step, made):
            return step, f"{text} {MENDED}"
    return None


def _as_on_other_devices(search: Search) -> Iterator[_Way]:
    """Give a step the value that it reads on all other devices, if that is the same on all of them."""
    for step in search.steps:
        others = [each for each in search.groups[id(step)] if each is not step]
        if len(others) < 2 or len({len(each.inputs) for each in others}) > 1 or not step.place:
            continue
        read = [search.read(step, number) for number in range(len(step.inputs))]
        for number, name in enumerate(step.inputs):
            theirs = [search.read(each, number) for each in others]
            own, first = read[number], theirs[0]
            if own is None or first is None or not all(equal(each, first) for each in theirs) or equal(own, first):
                continue
            maker, other = search.maker.get(name), search.maker.get(others[0].inputs[number])
            if maker is not None and other is not None:
                here, there = (f"the result of {named(each)}" for each in (maker, other))
            else:
                here, there = constant_texts(own, first)
            text = f"it reads {here}, but on the other devices it reads {there}, which"
            yield step, step, [*read[:number], first, *read[number + 1 :]], text


def _other_joins(search: Search) -> Iterator[_Way]:
    """Put another op in the place of one that joins results of several devices."""
    for step in search.steps:
        kinds = next((each for each in _ALIKE if step.kind in each), ())
        if step.place and len({search.maker[name].device for name in search.behind_moves(step)} if kinds else ()) > 1:
            read = [search.read(step, number) for number in range(len(step.inputs))]
            for kind in kinds:
                if kind != step.kind:
                    yield step, replace(step, kind=kind), read, f"it joins the parts; replacing it with {kind}"


def _right_with(search: Search, step: Step, made: list[Array]) -> bool:
    """Whether the wrong outputs are the reference's if a step gives ``made``."""
    known = run_from(search, dict(zip(step.outputs, made, strict=True)), search.order[id(step)] + 1)
    if known is None:
        return False
    outputs = [(known.get(name), leaf) for name, leaf in search.wrong_outputs() if leaf.part == "outputs"]
    return bool(outputs) and all(leaf.right_as(found) for found, leaf in outputs)
