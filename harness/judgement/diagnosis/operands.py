"""The operands of an op whose order does not matter, such as of a product, beside those of the reference's op."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.judgement.diagnosis.lookup import whole_and_rows
from harness.judgement.diagnosis.recorded import Step, equal

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search

#: Ops that give the same for their operands in another order.
_COMMUTING = frozenset(
    {
        *("Add", "AddV2", "AddN", "Mul", "Maximum", "Minimum", "SquaredDifference"),
        *("LogicalAnd", "LogicalOr", "Equal", "NotEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
    }
)


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
