"""How the op at which a program parts from the reference is unlike the reference's own: what else it reads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from harness.judgement.diagnosis.recorded import MOVES, Step, equal, named, writes_to
from harness.judgement.diagnosis.wording import factor_text, rows_text

if TYPE_CHECKING:
    from harness.judgement.diagnosis.lookup import Rows
    from harness.judgement.diagnosis.search import Search

#: These pair all rows of one input with all rows of another.
_PRODUCTS = ("MatMul", "Einsum", "Conv")
#: So many elements of a constant are named.
_FEW = 4


def unlike_reference(search: Search, step: Step, other: Step | None) -> str:
    """What a step reads or does that ``other``, the reference's op in its place, reads or does in another way."""
    if not step.outputs and step.inputs:
        often, usual = (
            sum(each.kind == step.kind and each.inputs[:1] == step.inputs[:1] for each in steps)
            for steps in (search.steps, search.whole)
        )
        return f"it runs {often} times, and in the reference {usual}" if often != usual and often > 1 else ""
    if other is None or other.kind != step.kind:
        return ""
    for number, mine in step.constants.items():
        theirs = other.constants.get(number)
        if step.inputs[number] in search.inputs or theirs is None:
            continue
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype or not equal(mine, theirs):
            return f"it reads the constant {_value(mine)} where the reference reads {_value(theirs)}"
    for name, value in step.attributes.items():
        if name in other.attributes and value != other.attributes[name]:
            return f"it has {name}={_plain(value)}, and the reference's {name}={_plain(other.attributes[name])}"
    return ""


def repeated_write(search: Search) -> Step | None:
    """The first write to a wrong variable that the reference does not make, where what is written is right."""
    for leaf in search.question.wrong:
        handle = getattr(getattr(search.question.watched[leaf.index], "handle", None), "_id", None)
        if leaf.part == "state" and handle is not None:
            usual = len(writes_to(handle, search.whole))
            if usual and (more := writes_to(handle, search.steps)[usual:]):
                return more[0]
    return None


def stale_read(search: Search, step: Step, other: Step | None) -> tuple[Step, str] | None:
    """The read of a variable before a write, of whose value a step gets parts, where the reference's reads it after."""
    waiting, seen = [step], {id(step)}
    while waiting:
        for name in waiting.pop().inputs:
            maker = search.maker.get(name)
            if maker is None or id(maker) in seen:
                continue
            seen.add(id(maker))
            if maker.kind in MOVES:
                waiting.append(maker)
            elif maker.kind == "ReadVariableOp":
                handle, (begin, end) = maker.inputs[0], (search.order[id(each)] for each in (maker, step))
                between = [each for each in writes_to(handle, search.steps[:end]) if search.order[id(each)] > begin]
                if between and not writes_to(handle, search.steps[:begin]) and _reads_after(search, handle, other):
                    return (
                        maker,
                        f"it reads the variable before {named(between[0])} writes to it, the reference afterwards",
                    )
    return None


def _reads_after(search: Search, handle: int, other: Step | None) -> bool:
    """Whether the reference reads a variable again, after it wrote to it, before its step ``other``."""
    end = next((number for number, each in enumerate(search.whole) if each is other), len(search.whole))
    before = search.whole[:end]
    first = next((number for number, each in enumerate(before) if writes_to(handle, [each])), len(before))
    return any(each.kind == "ReadVariableOp" and each.inputs[0] == handle for each in before[first:])


def mispaired(search: Search, step: Step) -> str:
    """Of a step that works row by row: which rows of one input it pairs with other rows of another one."""
    if step.kind in MOVES or any(word in step.kind for word in _PRODUCTS):
        return ""
    right = search.rows_of_device(step)
    read = [(name, search.rows[name]) for name in step.inputs if name in search.rows]
    # Those that belong on the device first.
    read.sort(key=lambda each: (each[1].numbers != right, each[1].numbers))
    for (mine, rows), (theirs, others) in pairwise(read):
        alike = (len(rows.numbers), rows.of) == (len(others.numbers), others.of)
        if alike and rows.numbers != others.numbers:
            order = " in another order" if sorted(rows.numbers) == sorted(others.numbers) else ""
            return f"it pairs {_rows(search, mine, rows)} with {_rows(search, theirs, others)}{order}"
    return ""


def expected_after(search: Search, step: Step) -> Step | None:
    """The op of the reference that computes with what this one reads."""
    tensors = {name for each in (step, *search.behind(step)) for name in each.inputs}
    read = {
        name
        for tensor in tensors
        if (partner := search.partner.get(tensor)) is not None and partner.step is not None
        for name in partner.step.outputs
    }
    alike = [each for each in search.whole if (each.kind, each.gradient_of) == (step.kind, step.gradient_of)]
    reader = next((each for each in alike if read.intersection(each.inputs)), None)
    if reader is not None or not read:
        return reader or counterpart(search, step, alike)
    reached = set(read)
    for other in search.whole:
        if reached.intersection(other.inputs) and bool(other.gradient_of) >= bool(step.gradient_of):
            if other.kind not in MOVES and other.computes:
                return other
            reached.update(other.outputs)
    return None


def counterpart(search: Search, step: Step, alike: Sequence[Step]) -> Step | None:
    """Of the reference's steps of the same type, the one that the same line of shared code runs as often before."""
    own = [
        each
        for each in search.steps
        if (each.kind, each.gradient_of, each.device) == (step.kind, step.gradient_of, step.device)
    ]
    number = [each.place for each in own[: own.index(step)]].count(step.place)
    there = [each for each in alike if each.place == step.place]
    return there[number] if number < len(there) else None


def _rows(search: Search, name: int, known: Rows) -> str:
    maker = search.maker.get(name)
    if maker is None:
        return f"{rows_text(known.numbers)} of an input"
    # Numbers that do not come from the data begin where they are counted.
    while name not in search.from_data:
        before = next((each for each in maker.inputs if each in search.maker), None)
        if before is None:
            break
        name, maker = before, search.maker[before]
    return f"{rows_text(known.numbers, 'position' if known.axis else 'row')} of {named(maker)}"


def _value(constant: np.ndarray) -> str:
    if constant.size == 1:
        value = constant.reshape(-1)[0]
        return factor_text(float(value)) if constant.dtype.kind == "f" else str(value)
    if constant.size <= _FEW:
        return str(constant.tolist())
    return f"array of shape {list(constant.shape)}"


def _plain(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
