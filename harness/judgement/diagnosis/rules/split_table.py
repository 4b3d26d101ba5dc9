"""The results are the reference's for other ids: each id is looked up as another one, always the same."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from harness.judgement.diagnosis.leaves import explains
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.recorded import close
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.search import searched
from harness.judgement.diagnosis.wording import listed
from harness.judgement.tolerance import epsilon_of

#: So many rows a table has at most, and so many ids are named.
_MOST_ROWS, _MOST_IDS = 4096, 3
_LOOKUPS = ("Gather", "ResourceGather")


def _claims(question: Question) -> Iterator[Cause]:
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    for index, ids in enumerate(question.input_arrays):
        if ids is None or ids.dtype.kind not in "iu" or ids.size < 2 or not outputs or np.any(ids < 0):
            continue
        for size in _sizes(question, int(ids.max()) + 1):
            if (table := _table(question, outputs[0], index, ids, size)) is None:
                continue
            places = _places(outputs[0], table, ids)
            if places is None or not _is_of_ids(ids.ravel(), places):
                continue
            leaves = question.reference.leaves()
            import tensorflow as tf

            leaves[index] = tf.constant(places.reshape(ids.shape), leaves[index].dtype)
            rest = [leaf for leaf in question.wrong if leaf.part != "state"]
            if len(rest) == len(question.wrong) and explains(question.run(inputs=question.with_leaves(leaves)), rest):
                yield _cause(question, index, ids.ravel(), places, table)
                return


def _sizes(question: Question, least: int) -> list[int]:
    """How many rows the table may have: those of variables that are large enough, and as many as the ids need."""
    arrays = (question.snapshot.starts.get(id(variable)) for variable in question.snapshot.variables)
    rows = {len(array) for array in arrays if isinstance(array, np.ndarray) and array.ndim > 1}
    steps = searched(question).whole
    rows |= {len(value) for step in steps for value in step.constants.values() if value.ndim > 1}
    rows |= {len(step.result) for step in steps if step.result is not None and step.result.ndim > 1}
    return sorted(size for size in rows if least <= size <= _MOST_ROWS)[:2] or [least]


def _table(question: Question, leaf: Leaf, index: int, ids: Array, size: int) -> Array | None:
    """What the reference gives for each id up to ``size``; ``None`` if a row depends on more than its id."""
    import tensorflow as tf

    expected = leaf.expected
    if expected is None or expected.shape[: ids.ndim] != ids.shape or expected.ndim == ids.ndim:
        return None
    leaves = question.reference.leaves()
    rows: list[Array] = []
    for begin in range(0, size, ids.size):
        numbers = np.minimum(np.arange(begin, begin + ids.size), size - 1)
        own = list(leaves)
        own[index] = tf.constant(numbers.reshape(ids.shape), leaves[index].dtype)
        result = question.run(inputs=question.with_leaves(own), gradients=False)
        made = None if result is None else leaf.of(result)
        if made is None or made.shape != expected.shape:
            return None
        rows.extend(made.reshape(ids.size, -1))
    table = np.stack(rows[:size])
    same = close(table[ids.ravel()], expected.reshape(ids.size, -1))
    return table if bool(np.all(same)) else None


def _places(leaf: Leaf, table: Array, ids: Array) -> Array | None:
    """For each id, the row of the table that was found; ``None`` if one is in no row."""
    found, expected = leaf.found, leaf.expected
    if found is None or expected is None or found.shape != expected.shape or not epsilon_of(found.dtype):
        return None
    places = []
    for number, row in zip(ids.ravel(), found.reshape(ids.size, -1), strict=True):
        near = np.flatnonzero(np.all(close(table, row[np.newaxis]), axis=1))
        if not len(near):
            return None
        places.append(number if number in near else near[0])
    return np.array(places)


def _is_of_ids(ids: Array, places: Array) -> bool:
    """Whether equal ids are looked up alike, and rows that changed places would not look the same."""
    rule = dict(zip(ids.tolist(), places.tolist(), strict=True))
    moved = [number for number, place in rule.items() if number != place]
    if not moved or any(rule[number] != place for number, place in zip(ids.tolist(), places.tolist(), strict=True)):
        return False
    again = any(np.count_nonzero(ids == number) > 1 for number in moved)
    return again or not set(places.tolist()) <= set(ids.tolist()) or len(set(rule.values())) < len(rule)


def _cause(question: Question, index: int, ids: Array, places: Array, table: Array) -> Cause:
    search = searched(question)
    gathers = [step for step in search.steps if step.kind.startswith(_LOOKUPS) and step.place]
    rule = dict(zip(ids.tolist(), places.tolist(), strict=True))
    moved = sorted(number for number, place in rule.items() if number != place)
    pairs = [f"{number} as {rule[number]}" for number in moved[:_MOST_IDS]]
    what = listed(pairs) if len(moved) <= _MOST_IDS else f"{', '.join(pairs)}, …"
    name = question.input_names[index]
    pairs_known = np.array(list(rule)), np.array(list(rule.values()))
    known = _rule(*pairs_known, len(question.devices), len(table), _splits(question, table))
    why, remedy = known or ("", "look up each id by the rule by which the table is split")
    return Cause(
        f"ids in {name} are looked up as other ids ({what}){why}",
        gathers[0].place if gathers else None,
        next_step=remedy,
        final=True,
    )


def _splits(question: Question, table: Array) -> set[int]:
    """How the program holds the table: 0 in blocks, 1 by modulo; nothing where no part of it is seen."""
    parts, arrays = len(question.devices), [*question.snapshot.starts.values()]
    arrays += [value for step in searched(question).steps for value in step.constants.values()]
    known = [array.reshape(len(array), -1) for array in arrays if isinstance(array, np.ndarray) and array.ndim > 1]
    rows = -(-len(table) // parts)
    wanted = table[rows : 2 * rows], table[1::parts]
    return {
        split
        for split, part in enumerate(wanted)
        if any(array.shape == part.shape and bool(np.all(close(array, part))) for array in known)
    }


def _rule(ids: Array, places: Array, parts: int, size: int, splits: set[int]) -> tuple[str, str] | None:
    """By which rule the ids are looked up, and by which the table is split, if that gives these places."""
    rows = size // parts
    if parts < 2 or size % parts or np.count_nonzero(ids != places) < 2:
        return _shifted(ids, places)
    owners = [(f"part id // {rows}", ids // rows), (f"part id % {parts}", ids % parts)]
    within = [(f"row id % {rows}", ids % rows), (f"row id // {parts}", ids // parts)]
    for split, how in enumerate(("in blocks", f"by id % {parts}")):
        if splits and split not in splits:
            continue
        right = f"{owners[split][0]} and {within[split][0]}"
        for (chosen, owner), (at, place) in product(owners, within):
            made = place * parts + owner if split else owner * rows + place
            if np.array_equal(made, places):
                return (
                    f": the table is split {how} into {parts} parts, but an id is looked up in {chosen} and {at}",
                    f"look it up in {right}",
                )
    return _shifted(ids, places)


def _shifted(ids: Array, places: Array) -> tuple[str, str] | None:
    """Say it of ids that are looked up so many rows further on, from one id to another one."""
    moved = np.sort(ids[ids != places])
    off = {int(place - number) for number, place in zip(ids, places, strict=True) if number != place}
    between = [number for number in ids if moved[0] <= number <= moved[-1]]
    if len(off) != 1 or len(between) != len(moved):
        return None
    by = off.pop()
    further = f"{abs(by)} {'row' if abs(by) == 1 else 'rows'} {'further on' if by > 0 else 'before'}"
    which = f"ids from {moved[0]} to {moved[-1]}" if len(moved) > 1 else f"id {moved[0]}"
    verb = "are" if len(moved) > 1 else "is"
    return f": {which} {verb} looked up {further}", "compare where the program cuts the ids with where the table is cut"


RULE = Rule("C107", "split-table", "ids looked up in a split table by another rule", _claims)
