"""One op, run again by itself: from the inputs that it had or from the reference's, on its device or on another one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.evidence.arithmetic import MOVEMENT, PYTHON
from harness.evidence.op_types import op_arguments
from harness.judgement.diagnosis.leaves import handle_of
from harness.judgement.diagnosis.lookup import whole_and_rows
from harness.judgement.diagnosis.observed import draws_numbers
from harness.judgement.diagnosis.question import Array
from harness.judgement.diagnosis.recorded import GIVEN, Step, equal, is_write
from harness.lazy import tf

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search

#: What a variable is after a write, of what it was and what is written.
_WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "AssignVariableOp": lambda _, new: new,
    "AssignAddVariableOp": lambda before, new: before + new,
    "AssignSubVariableOp": lambda before, new: before - new,
}


def repeats(kind: str) -> bool:
    """Whether an op of this type computes, and the same each time."""
    return kind not in MOVEMENT | GIVEN | PYTHON and not draws_numbers(kind)


def results_of(
    kind: str, inputs: Sequence[Any], attributes: Sequence[Any], device: str, cast: Any = None
) -> list[Array]:
    """What an op gives on this device, its floating inputs cast if asked; ``attributes``: names and values in turn."""
    pairs = dict(zip(attributes[::2], attributes[1::2], strict=True))
    run = getattr(tf.raw_ops, kind)
    arguments: dict[str, Any] = {}
    wanted = op_arguments(kind, "input")
    known = inspect.signature(run).parameters
    # Python may have another name for an argument, such as "axis", in the same place.
    other_names = (name for name in known if name not in {*pairs, *(argument.name for argument in wanted)})
    with tf.device(device):
        given = [tf.convert_to_tensor(each) for each in inputs]
        given = [tf.cast(each, cast) if cast is not None and each.dtype.is_floating else each for each in given]
        for argument in wanted:
            # Eager code may leave the number of tensors out.
            count = pairs.get(argument.number_attr, len(given) - (len(wanted) - len(arguments) - 1))
            name = argument.name if argument.name in known else next(other_names, argument.name)
            arguments[name] = given[:count] if argument.number_attr else given[0]
            given = given[count:] if argument.number_attr else given[1:]
        made = run(**arguments, **{name: value for name, value in pairs.items() if name in known})
    return [np.asarray(each.numpy()) for each in (made if isinstance(made, (list, tuple)) else [made])]


def from_reference(search: Search, step: Step) -> list[Array] | None:
    """What a step gives from the reference's inputs; ``None`` where it cannot be run again, or they are not known."""
    inputs = [_of_reference(search, step, number) for number in range(len(step.inputs))]
    if not repeats(step.kind) or any(value is None for value in inputs) or any(one is None for one in step.results):
        return None
    return run_again(step, inputs, step.given)


def run_again(step: Step, inputs: Sequence[Any], attributes: Sequence[Any]) -> list[Array] | None:
    """What a step gives on its device from these inputs; ``None`` where it cannot be run again."""
    try:
        return results_of(step.kind, inputs, attributes, step.device)
    except (tf.errors.OpError, TypeError, ValueError, KeyError, AttributeError):
        return None  # an op that Python does not have, or that needs what it is not given here


def run_from(search: Search, made: dict[int, Array], begin: int, end: int | None = None) -> dict[int, Array] | None:
    """What the program's steps from ``begin`` to ``end`` give if these tensors have other values.

    ``None`` if one of them cannot be run again.
    The values of the tensors that change are returned, and ``made`` with them.
    """
    known = dict(made)
    for each in search.steps[begin:end]:
        if known.keys().isdisjoint(each.inputs):
            continue
        inputs = [known.get(name, search.read(each, number)) for number, name in enumerate(each.inputs)]
        replayed = not draws_numbers(each.kind) and all(one is not None for one in inputs)
        again = run_again(each, inputs, each.given) if replayed else None
        if again is None:
            return None
        known.update(zip(each.outputs, again, strict=True))
    return known


class Values:
    """The values of tensors and variables in a replay: those that changed, else those of the program's own run."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.changed: dict[int, Array] = {}
        starts = search.question.snapshot.starts
        #: By the variables' handles, what they are now; and which of them differ from the program's own run.
        self.variables: dict[int, Array | None] = {
            handle_of(variable): starts.get(id(variable)) for variable in search.question.snapshot.variables
        }
        self.differing: set[int] = set()
        #: What they are in the program's own run.
        self.own = dict(self.variables)

    def get(self, name: int) -> Array | None:
        """The value of a tensor."""
        return self.changed[name] if name in self.changed else self.search.value(name)

    def variable(self, handle: int) -> Array | None:
        """The value of a variable, by its handle."""
        return self.variables.get(handle)

    def unseen(self, step: Step) -> dict[int, Array]:
        """By the number of the input, what a step reads of changed variables that it is given as they are.

        TensorFlow reads these without an op, and their values tell which they are.
        """
        return {
            number: now
            for number, value in step.constants.items()
            for handle in self.differing
            if value.size > 1 and (own := self.own.get(handle)) is not None and np.array_equal(value, own)
            if (now := self.variables.get(handle)) is not None
        }


#: What an op makes of what it reads, in the place of its own; a write gets the variable first, and gives its new value.
Edit = Callable[[list[Any], Values], "list[Array] | None"]


def run_with(search: Search, edits: Mapping[int, Edit], live: int = 0, held: Collection[int] = ()) -> Values | None:
    """All of the program again, with other results of some steps, by their ids; ``None`` if a step cannot run again.

    The tensors ``held`` become what is written to the variable ``live`` at each write.
    """
    values = Values(search)
    for step in search.steps:
        if is_write(step.kind):
            if not _write(search, step, values, edits.get(id(step))):
                return None
            if step.inputs[0] == live and (now := values.variable(live)) is not None:
                values.changed.update(dict.fromkeys(held, now))
            continue
        edit, unseen = edits.get(id(step)), values.unseen(step)
        same = values.changed.keys().isdisjoint(step.inputs) and values.differing.isdisjoint(step.inputs)
        if edit is None and same and not unseen:
            continue
        again = _again(search, step, values, edit, unseen)
        if again is None:
            return None
        values.changed.update(zip(step.outputs, again, strict=True))
    return values


def _again(
    search: Search, step: Step, values: Values, edit: Edit | None, unseen: Mapping[int, Array]
) -> list[Array] | None:
    if not values.differing.isdisjoint(step.inputs):
        now = values.variable(step.inputs[0])
        return [now] if step.kind == "ReadVariableOp" and now is not None and edit is None else None
    inputs = [
        unseen[number] if number in unseen else values.changed.get(name, search.read(step, number))
        for number, name in enumerate(step.inputs)
    ]
    if edit is not None:
        return edit(inputs, values) if all(one is not None for one in inputs) else None
    if draws_numbers(step.kind) or any(one is None for one in inputs):
        return None
    return run_again(step, inputs, step.given)


def _write(search: Search, step: Step, values: Values, edit: Edit | None) -> bool:
    """Write to a variable as a step does, or as ``edit`` says; ``False`` if that is not known."""
    handle, before = step.inputs[0], values.variable(step.inputs[0])
    changed = not values.changed.keys().isdisjoint(step.inputs) or handle in values.differing or edit is not None
    own = search.read(step, len(step.inputs) - 1)
    new = values.unseen(step).get(len(step.inputs) - 1, values.changed.get(step.inputs[-1], own))
    if step.kind not in _WRITES or new is None or (before is None and step.kind != "AssignVariableOp"):
        values.variables[handle] = values.own[handle] = None
        return not changed
    values.own[handle] = _WRITES[step.kind](values.own.get(handle), own)
    made = edit([before, new], values) if edit is not None else [_WRITES[step.kind](before, new)]
    values.variables[handle] = made[0] if made else None
    if changed:
        values.differing.add(handle)
    return bool(made)


def _of_reference(search: Search, step: Step, number: int) -> Array | None:
    """An input of a step as the reference has it; its own where the reference has none; ``None`` if it is not equal."""
    name = step.inputs[number]
    if name in search.replaced:
        return search.replaced[name]
    own, partner = search.read(step, number), search.partner.get(name)
    if name not in search.maker:
        return own
    if own is None or partner is None:
        return None
    results = partner.step.results if partner.step is not None else ()
    parts = (part for result in results for part in whole_and_rows(result, partner.rows) if part.size == own.size)
    return next((theirs for part in parts if equal(theirs := part.reshape(own.shape), own)), own)
