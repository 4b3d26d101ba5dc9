"""Both programs followed back from a result, op by op, where they run the same ops on the way to it.

Rows that are right in another place, as where a mask is wrong, are found so: matched by value, they have an equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from harness.judgement.diagnosis.question import Array
from harness.judgement.diagnosis.recorded import Step, equal

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search
from dataclasses import replace

from harness.judgement.diagnosis.lookup import whole_and_rows

#: Ops that give the same for their operands in another order.
_COMMUTING = frozenset(
    {
        *("Add", "AddV2", "AddN", "Mul", "Maximum", "Minimum", "SquaredDifference"),
        *("LogicalAnd", "LogicalOr", "Equal", "NotEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
    }
)


def first_unlike(search: Search, join: Step) -> tuple[Step, Step] | None:
    """The first op behind a part of a joined result that differs from the reference's op, and that one."""
    leaf = next((leaf for name, leaf in search.wrong_outputs() if name in join.outputs), None)
    right = leaf.expected if leaf is not None else None
    if right is None or join.kind != "ConcatV2":
        return None
    there = next((step for step in reversed(search.whole) if any(equal(each, right) for each in step.results)), None)
    parts = [(search.maker[name], search.value(name)) for name in join.inputs[:-1] if name in search.maker]
    known = [(step, part) for step, part in parts if part is not None and part.ndim == right.ndim]
    axis = int(join.constants.get(len(join.inputs) - 1, np.array(0))) % max(right.ndim, 1)
    begin = 0
    for step, part in known if len(known) == len(join.inputs) - 1 else ():
        rows = range(begin, begin + part.shape[axis])
        begin = rows.stop
        if there is not None and not _alike(part, right, rows, right.shape[axis]):
            return _behind(search, step, there, rows, right.shape[axis])
    return None


def _behind(search: Search, step: Step, there: Step, rows: Sequence[int], of: int) -> tuple[Step, Step] | None:
    while (step.kind, len(step.inputs)) == (there.kind, len(there.inputs)):
        for number, (mine, theirs) in enumerate(zip(step.inputs, there.inputs, strict=True)):
            own, right = search.read(step, number), search.value(theirs)
            if own is None or right is None or mine not in search.from_data:
                continue
            if mine in search.maker and not _alike(own, right, rows, of):
                step, there = search.maker[mine], search.makers[theirs]
                break
        else:
            return step, there
    return None


def _alike(own: Array, right: Array, rows: Sequence[int], of: int) -> bool:
    """Whether a tensor is the reference's, or those rows of it."""
    if own.shape == right.shape:
        return equal(own, right)
    along = [axis for axis, size in enumerate(right.shape) if size == of]
    return any(equal(own, np.take(right, rows, axis)) for axis in along)


def beside_operands(search: Search, step: Step, other: Step) -> Step:
    """The reference's op in the place of ``step``, with its operands in the order in which ``step`` has equal ones.

    ``other`` is what the reference runs with what ``step`` reads. If it is left out of a chain, such as of products,
    the op in the place of ``step`` comes later.
    """
    if step.kind not in _COMMUTING or step.kind != other.kind:
        return other
    other = _with_its_constant(search, step, other)
    count, free = len(step.inputs), list(range(len(other.inputs)))
    if len(free) != count:
        return other
    order: dict[int, int] = {}
    for number in range(count):
        known = next((at for at in free if _same(search, step, number, other, at)), None)
        if known is not None:
            order[number] = known
            free.remove(known)
    order |= dict(zip((number for number in range(count) if number not in order), free, strict=True))
    constants = {number: other.constants[at] for number, at in order.items() if at in other.constants}
    return replace(other, inputs=tuple(other.inputs[order[number]] for number in range(count)), constants=constants)


def _with_its_constant(search: Search, step: Step, other: Step) -> Step:
    """The first op, of those of its type that read one another's results from ``other`` on, with a constant of it."""
    own = [value for number, value in step.constants.items() if step.inputs[number] not in search.inputs]
    # Of shared code the line tells; and where the program goes on in such a chain, no op is left out of it.
    if step.place == other.place or any(_follows(each, step) for each in search.steps):
        return other
    found: Step | None = other
    while found is not None and not any(equal(one, each) for one in own for each in found.constants.values()):
        before = found
        found = next((each for each in search.whole if _follows(each, before)), None)
    return found or other


def _follows(step: Step, before: Step) -> bool:
    alike = (step.kind, step.gradient_of) == (before.kind, before.gradient_of)
    return alike and not set(before.outputs).isdisjoint(step.inputs)


def _same(search: Search, step: Step, number: int, other: Step, at: int) -> bool:
    """Whether an operand is equal to one of the reference's op, has rows of it, or is a shard's part of it."""
    mine, theirs = step.inputs[number], other.inputs[at]
    own, wanted, partner = search.read(step, number), search.read(other, at), search.partner.get(mine)
    if partner is not None and partner.step is not None and partner.step is search.makers.get(theirs):
        return True
    return any(equal(own, part) for part in whole_and_rows(wanted, partner.rows if partner is not None else None))
