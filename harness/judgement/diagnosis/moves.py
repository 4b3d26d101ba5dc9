"""Ops that only move data, such as a slice or a roll: which of them moves the right data in a wrong way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from harness.judgement.diagnosis.question import Array
from harness.judgement.diagnosis.recorded import MOVES, Step, equal
from harness.judgement.diagnosis.replays import run_again
from harness.judgement.diagnosis.wording import attribute_text, constant_texts

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search

#: The op of the reference that has a result; ``(None,)`` for what was given, ``None`` where there is none.
_Origin = tuple["Step | None"] | None
#: How many ops of the reference are tried if it is not known which one belongs in the place of the program's op.
_MOST = 20


def other_move(search: Search, step: Step, expected: Step | None) -> tuple[Step, list[Step], str] | None:
    """Find the first op that moves data in a wrong way: one of those before ``step``, or ``step`` itself.

    The op is compared with the same op on a device that does ``step`` right. If there is no such device, it is compared
    with the reference, whose op in the place of ``step`` is ``expected``.

    Returns the op, the same op on all devices that do it in this wrong way, and the text that says what differs.
    """
    group = [each for each in search.groups[id(step)] if each is not step and not search.is_bad(each)]
    right = next((each for each in group if step.kind not in MOVES or all(_origins(search, each))), None)
    if right is not None:
        return _first(search, step, right, f", but on {right.on} it reads")
    alike = [expected] if expected is not None and expected.kind == step.kind else []
    if step.kind in MOVES:
        alike += [each for each in search.whole if (each.kind, each.gradient_of) == (step.kind, "")][:_MOST]
    found = (_first(search, step, other, " where the reference reads") for other in alike)
    return next(filter(None, found), None)


def _first(search: Search, step: Step, beside: Step, where: str) -> tuple[Step, list[Step], str] | None:
    found, waiting, seen = [], [(step, beside)], {id(step)}
    while waiting:
        one, other = waiting.pop()
        if one.kind in MOVES and one.place and (text := _difference(search, one, other, where)):
            found.append((one, other, text))
        for mine, theirs in zip(one.inputs, other.inputs, strict=False):
            before, there = search.maker.get(mine), search.makers.get(theirs)
            if before is None or there is None or id(before) in seen or mine not in search.from_data:
                continue
            if before.kind in MOVES and (before.kind, before.gradient_of) == (there.kind, ""):
                seen.add(id(before))
                waiting.append((before, there))
    if not found:
        return None
    first, other, text = min(found, key=lambda each: search.order[id(each[0])])
    alike = [each for each in search.groups[id(first)] if _difference(search, each, other, where) == text]
    return first, alike or [first], text


def _difference(search: Search, one: Step, other: Step, where: str) -> str:
    """Say which constant or attribute of ``one`` is unlike that of ``other``, if the latter makes its result right."""
    right = _origins(search, other, other.results if id(other) not in search.order else None)
    mine = _origins(search, one)
    if not all(right) or mine == right or len(one.inputs) != len(other.inputs):
        return ""
    if any(each and each[0] for each in mine) and mine != [_origin(search, name) for name in one.inputs[:1]]:
        return ""  # its result is right, but is read where another one should be
    read: list[Array] = []
    text = ""
    for number, name in enumerate(one.inputs):
        own, theirs = search.read(one, number), search.read(other, number)
        data = name in search.from_data
        if own is None or (theirs is None and not data):
            return ""
        if not data and theirs is not None:
            if not equal(own, theirs):
                what = "" if name in search.maker else "the constant "
                here, there = constant_texts(own, theirs)
                text = text or f"it reads {what}{here}{where} {there}"
            own = _of_any_rows(theirs) if one.kind == "Reshape" and name in search.maker else theirs
        read.append(own)
    for attribute, value in one.attributes.items():
        if not text and attribute in other.attributes and value != other.attributes[attribute]:
            here, there = (attribute_text(attribute, each) for each in (value, other.attributes[attribute]))
            text = f"it has {attribute}={here}{where.replace('reads', 'has')} {there}"
    made = run_again(one, read, other.given) if text else None  # impossible with another number of rows, say
    return text if made and _origins(search, one, made) == right else ""


def _origins(search: Search, step: Step, results: Sequence[Array | None] | None = None) -> list[_Origin]:
    """Of each result, or of these in their place: the op of the reference that has it, or rows of it."""
    if results is None:
        return [_origin(search, name) for name in step.outputs]
    arrays = enumerate(results)
    known = [None if each is None else search.partners.of(each, search.likely(step, port)) for port, each in arrays]
    return [(each.step,) if each is not None and each.how == "same" else None for each in known]


def _origin(search: Search, name: int) -> _Origin:
    partner = search.partner.get(name)
    return (partner.step,) if partner is not None and partner.how == "same" else None


def _of_any_rows(shape: Array) -> Array:
    """A shape that was computed, for another number of rows."""
    return np.concatenate([np.full_like(shape[:1], -1), shape[1:]])
