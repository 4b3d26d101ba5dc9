"""The first op whose result differs although its inputs are equal: where two programs part.

Both programs run once more in eager code, with each result kept. What the same step computes on each device is joined
along the rows, and results are matched by value, never by their order or their names: so a program may be written in
other lines than the reference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from harness.judgement.diagnosis.question import Array, Cause, Question
from harness.judgement.diagnosis.recorded import Step, equal, steps_of


def first_difference(question: Question) -> Iterator[Cause]:
    """Name the first op of the reference that has no equal in the program, though all that it reads has."""
    if not any(leaf.part == "outputs" for leaf in question.wrong):
        return
    reference, program = steps_of(question, question.reference), steps_of(question, question.parallel)
    made = _joined(program)
    same: dict[int, tuple[Step, ...]] = {}
    unequal: set[int] = set()
    count = 0
    for step in reference:
        known = not any(each in unequal for each in step.inputs)
        if not step.computes:
            unequal.update(() if known else step.outputs)
            if known:
                # What only moves data stands for what it reads.
                before = tuple(each for name in step.inputs for each in same.get(name, ()))
                same.update(dict.fromkeys(step.outputs, before))
            continue
        wanted = step.result
        assert wanted is not None
        match = next((steps for steps, array in made[wanted.shape] if equal(array, wanted)), None)
        if match is not None:
            same.update(dict.fromkeys(step.outputs, match))
            count += 1
        elif known:
            yield _cause(question, step, [each for name in step.inputs for each in same.get(name, ())], program, count)
            return
        else:
            unequal.update(step.outputs)


def _cause(question: Question, origin: Step, before: list[Step], program: list[Step], count: int) -> Cause:
    wrong = tuple(question.wrong)
    reached = {name for step in before for name in step.outputs}
    other = None
    for step in program:
        if reached.intersection(step.inputs):
            if step.computes and step not in before:
                other = step
                break
            reached.update(step.outputs)
    where = f" ({origin.place})" if origin.place else ""
    sentence = f"the first op of the reference whose result differs is {origin.kind}{where}: its inputs are equal"
    sentence += f", as are {count} results before it" if count > 1 else ""
    if other is not None and other.kind != origin.kind:
        return Cause(f"{sentence}; the program runs {other.kind} there", other.place, wrong)
    return Cause(sentence, other.place if other is not None and other.place != origin.place else None, wrong)


def _joined(steps: list[Step]) -> dict[tuple[int, ...], list[tuple[tuple[Step, ...], Array]]]:
    """Results by their shape: each by itself, and the same step of all devices joined along the first axis."""
    found: dict[tuple[int, ...], list[tuple[tuple[Step, ...], Array]]] = defaultdict(list)
    by_kind: dict[str, dict[str, list[Step]]] = defaultdict(lambda: defaultdict(list))
    for step in steps:
        if step.result is not None:
            found[step.result.shape].append(((step,), step.result))
            if step.computes:
                by_kind[step.kind][step.device].append(step)
    for devices in by_kind.values():
        for parts in zip(*devices.values(), strict=False):
            arrays = [part.result for part in parts if part.result is not None and part.result.ndim]
            if len(arrays) == len(parts) > 1 and len({array.shape[1:] for array in arrays}) == 1:
                whole = np.concatenate(arrays)
                found[whole.shape].append((parts, whole))
    return found
