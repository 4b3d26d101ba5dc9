"""Where a planted fault is: the first op that the program's clean twin does not run in the same way."""

from __future__ import annotations

from typing import Any

from harness.evidence.arithmetic import MOVEMENT
from harness.faults.fault import Case, Program
from harness.judgement.diagnosis.observed import place_of_function
from harness.judgement.diagnosis.recorded import Step, equal, recording
from harness.judgement.runs import Program as Run
from harness.lazy import tf

_Values = list[Any]


def lines_at_fault(faulty: Case, clean: Case) -> frozenset[str]:
    """The lines (``file.py:12``) that lead to the first op of the faulty program that its clean twin does not run.

    An op of the twin is the same if it has the same type, or both only move data, and the same results or, without
    results, inputs. Each stands for one op. If the twin has all ops of the faulty program, the fault is at the first op
    in another order; if the twin has more, between the two ops where the first of these is left out, or where the
    program is defined.
    """
    ours, theirs = _run(faulty, faulty.parallel), _run(clean, clean.twin)
    left = dict(enumerate(theirs))
    partners: dict[int, int] = {}
    for number, (step, values) in enumerate(ours):
        same = (at for at, (other, found) in left.items() if _alike(step, other) and _equal(values, found))
        if (at := next(same, None)) is None:
            return frozenset(step.places)
        del left[at]
        partners[at] = number
    if left:
        after = max((number for at, number in partners.items() if at < min(left)), default=-1)
        lines = {place for step, _ in ours[max(after, 0) : after + 2] for place in step.places}
        return frozenset(lines | {place_of_function(faulty.parallel) or ""})
    order = [partners[at] for at in sorted(partners)]
    moved = next((number for at, number in enumerate(order) if number != at), None)
    return frozenset() if moved is None else frozenset(ours[min(moved, order.index(moved))][0].places)


def _run(case: Case, program: Program) -> list[tuple[Step, _Values]]:
    """The ops of one eager run, each with its results, or with its inputs where it has none."""
    inputs = tf.nest.map_structure(tf.convert_to_tensor, dict(case.inputs), expand_composites=False)
    run = Run(program, inputs, (), False, 0)
    with case.surroundings(), recording() as steps:
        run.step(*run.leaves())
    known = {name: value for step in steps for name, value in zip(step.outputs, step.results, strict=True)}
    return [(step, list(step.results) or [known.get(name) for name in step.inputs]) for step in steps]


def _alike(one: Step, other: Step) -> bool:
    return one.kind == other.kind or (bool(one.outputs) and {one.kind, other.kind} <= MOVEMENT)


def _equal(one: _Values, other: _Values) -> bool:
    return len(one) == len(other) and all(
        a is b is None or (a is not None and b is not None and equal(a, b)) for a, b in zip(one, other, strict=True)
    )
