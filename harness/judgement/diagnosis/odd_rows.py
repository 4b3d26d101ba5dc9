"""Rows of other shards that an op is given, but not those, counted from its own shard, that other devices take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from harness.judgement.diagnosis.question import Array
from harness.judgement.diagnosis.recorded import MOVES, Step, equal, titled
from harness.judgement.diagnosis.replays import run_from
from harness.judgement.diagnosis.wording import rows_text

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search

#: A step, which of its inputs, and the tensor that the same step on another device reads there.
_Reading = tuple[Step, int, int]


def other_rows(search: Search, step: Step) -> tuple[Step, list[Step], str] | None:
    """Find the first op behind ``step`` that takes other rows than the same one does on a device that is right.

    It is the cause if ``step`` gives what the reference has from the rows that correspond to those.

    Returns the op, again in a list, and the text that says which rows these are.
    """
    for right in (each for each in search.groups[id(step)] if not search.is_bad(each)):
        readings = list(_readings(search, step, right))
        for reader, mine, theirs in sorted(readings, key=lambda each: search.order[id(search.maker[each[1]])]):
            maker = search.maker[mine]
            # Of a split all parts are right: the wrong one is read.
            found = reader if len(maker.outputs) > 1 else maker
            rows, wanted = search.rows[mine], _wanted(search, mine, theirs, step, right)
            made = _with_rows(search, mine, wanted) if wanted and found.place else None
            if made is None or not wanted or not _is_right_from(search, mine, made, step):
                continue
            unit = "position" if rows.axis else "row"
            here, there, like = (rows_text(each, unit) for each in (rows.numbers, wanted, search.rows[theirs].numbers))
            corresponding = f"{there}, which {'correspond' if len(wanted) > 1 else 'corresponds'} to {like}"
            verb = "reads" if found is reader else "takes"
            text = f"it {verb} {here}; with {corresponding} on {right.on}, the result of {titled(step)} is right"
            return found, [found], text
    return None


def _readings(search: Search, step: Step, right: Step) -> Iterator[_Reading]:
    """What a step reads, and what those before it read that only move data, beside what the other step reads there."""
    for mine, theirs in zip(step.inputs, right.inputs, strict=False):
        one, other = search.maker.get(mine), search.maker.get(theirs)
        if one is not None and other is not None and one.kind == other.kind and one.kind in MOVES:
            if mine in search.rows and theirs in search.rows and mine in search.from_data:
                yield step, mine, theirs
            yield from _readings(search, one, other)


def _wanted(search: Search, mine: int, theirs: int, step: Step, right: Step) -> tuple[int, ...]:
    """The rows that ``step`` should have, as ``right`` has them; empty where it has these, or they are not known."""
    rows, other, axis = search.rows[mine], search.rows[theirs], search.shards[0]
    own, beside = search.rows_of_device(step), search.rows_of_device(right)
    if not own or len(own) != len(beside) or not (axis, rows.of) == rows[::2] == other[::2]:
        return ()
    numbers = tuple((number + own[0] - beside[0]) % rows.of for number in other.numbers)
    return numbers if len(numbers) == len(rows.numbers) and numbers != rows.numbers else ()


def _with_rows(search: Search, name: int, wanted: tuple[int, ...]) -> Array | None:
    """These rows of the tensor some rows of which ``name`` has."""
    value, rows, partner = search.value(name), search.rows[name], search.partner[name]
    wholes = partner.step.results if partner.step is not None else search.question.input_arrays
    for whole in wholes:
        if value is not None and whole is not None and whole.shape[rows.axis : rows.axis + 1] == (rows.of,):
            taken = np.take(whole, rows.numbers, rows.axis)
            if taken.size == value.size and equal(taken.reshape(value.shape), value):
                return np.asarray(np.take(whole, wanted, rows.axis).reshape(value.shape))
    return None


def _is_right_from(search: Search, name: int, made: Array, step: Step) -> bool:
    """Whether ``step`` gives what the reference has if a tensor has this value."""
    known = run_from(search, {name: made}, search.order[id(search.maker[name])] + 1, search.order[id(step)] + 1)
    arrays = [known.get(each) for each in step.outputs] if known is not None else []
    return search.has(step, arrays, "same")
