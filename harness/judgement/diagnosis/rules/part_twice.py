"""The reference has the result of a join of other parts: one is there twice, or left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from harness.devices.name import DeviceName
from harness.judgement.diagnosis.joins import Join
from harness.judgement.diagnosis.origins import place_of_step
from harness.judgement.diagnosis.question import Array, Cause, Question
from harness.judgement.diagnosis.recorded import Step, equal, named
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.search import Search, searched
from harness.judgement.diagnosis.wording import listed

#: Ops that join as many tensors as they read.
_JOINS = frozenset({"ConcatV2", "Pack", "AddN"})
_SUMS = frozenset({"AddN", "AddV2"})


def _claims(question: Question) -> Iterator[Cause]:
    if all(leaf.part == "gradients" for leaf in question.wrong):
        return
    search = searched(question)
    for step in search.steps:
        joins = step.kind in _JOINS or not search.sums.keys().isdisjoint(step.outputs)
        if joins and search.status[step.outputs[0]] not in ("same", "part"):
            whole = replace(step, inputs=tuple(search.addends(step)))
            found = next(_twice(search, whole), None) or (_left_out(search, whole) if step.kind in _SUMS else None)
            if found is not None:
                yield Cause(*found)
                return


def _twice(search: Search, step: Step) -> Iterator[tuple[str, str | None]]:
    for first, again in _equal_parts(search, step):
        if (right := _right(search, step, first, again)) is not None:
            number, instead = right
            made = search.maker[step.inputs[number]]
            if step.kind in _SUMS:
                lost = f", and leaves out that of {_on(instead)}" if instead is not None else ""
                yield f"{step.kind} adds the result of {_on(made)} twice{lost}", place_of_step(step, search.shared)
            else:
                sentence = (
                    f"parts {first} and {again} of {named(step)} are both the result of {_on(made)}; in the reference, "
                    f"part {number} is a different result"
                )
                yield sentence, place_of_step(made, search.shared)


def _left_out(search: Search, step: Step) -> tuple[str, str | None] | None:
    """An addend, or several, that no step reads."""
    joined = step.results[0]
    lost = _unread(search, step.inputs[0]) if step.inputs[0] in search.maker else []
    parts = [each.results[0] for each in lost]
    if not lost or joined is None or any(part is None or part.shape != joined.shape for part in parts):
        return None
    total = joined + sum(part for part in parts if part is not None)
    count = len(step.inputs) + len(lost)
    if any(
        equal(each.astype(joined.dtype), wanted) for each in (total, total / count) for wanted in _wanted(search, step)
    ):
        made, few = listed([_on(each) for each in lost]), len(lost) == 1
        what = f"the result of {made}; no op reads it" if few else f"the results of {made}; no op reads them"
        return f"{step.kind} leaves out {what}", place_of_step(step, search.shared)
    return None


def _on(step: Step) -> str:
    device = DeviceName.parse(step.device).short if step.device else ""
    return f"{named(step)} on {device}" if device else named(step)


def _equal_parts(search: Search, step: Step) -> Iterator[tuple[int, int]]:
    """The pairs of parts that are equal, and not because both are zero."""
    values = [search.value(name) if name in search.maker else None for name in step.inputs]
    for first, one in enumerate(values):
        for again in range(first + 1, len(values)):
            other = values[again]
            if one is not None and other is not None and one.size > 1 and np.any(one) and equal(one, other):
                yield first, again


def _right(search: Search, step: Step, first: int, again: int) -> tuple[int, Step | None] | None:
    """Which of the two parts is the wrong one, and the step whose result nobody reads that belongs there."""
    joined = step.results[0]
    if joined is None:
        return None
    wanted = _wanted(search, step)
    for number in (again, first):
        if step.kind in _SUMS:
            for each in (None, *_unread(search, step.inputs[number])):
                mine = search.value(step.inputs[number])
                part = np.zeros_like(joined) if each is None else each.results[0]
                if part is None or mine is None or part.shape != mine.shape:
                    continue
                if any(equal((joined - mine + part).astype(joined.dtype), result) for result in wanted):
                    return number, each
        elif (own := _of_part(search, step, number)) is not None and any(
            equal(joined[~own], result[~own]) and not equal(joined, result) for result in wanted
        ):
            return number, None
    return None


def _wanted(search: Search, step: Step) -> list[Array]:
    """The results of the reference of the same shape and dtype."""
    joined = step.results[0]
    assert joined is not None
    results = [result for each in search.whole for result in each.results if result is not None]
    return [result for result in results if (result.shape, result.dtype) == (joined.shape, joined.dtype)]


def _unread(search: Search, name: int) -> list[Step]:
    """Steps like the one that made a tensor, on any device, whose result no step reads."""
    read = {each for step in search.steps for each in step.inputs}
    return [step for step in search.groups[id(search.maker[name])] if not read.intersection(step.outputs)]


def _of_part(search: Search, step: Step, number: int) -> Array | None:
    """Which elements of the result of a join are those of one of its parts."""
    read = [search.read(step, at) for at in range(len(step.inputs))]
    # The last input of this one is the axis.
    parts = [part for part in (read[:-1] if step.kind == "ConcatV2" else read) if part is not None]
    joined, name = step.results[0], "stack" if step.kind == "Pack" else "concat"
    if joined is None or len(parts) < len(read) - (name == "concat"):
        return None
    for axis in range(joined.ndim):
        made = Join(name, axis).of(parts, ())
        if made is not None and equal(made, joined):
            return Join(name, axis).of([np.full(part.shape, at == number) for at, part in enumerate(parts)], ())
    return None


RULE = Rule("C114", "part-twice", "a part added or joined twice, or left out", _claims)
