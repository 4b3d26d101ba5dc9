"""What a wrong intermediate result is to one of the reference's: a multiple, or a wrong join of what shards have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from harness.judgement.diagnosis.joins import Join
from harness.judgement.diagnosis.leaves import factor_of
from harness.judgement.diagnosis.question import Array
from harness.judgement.diagnosis.recorded import GIVEN, MOVES, Step, equal, named
from harness.judgement.diagnosis.replays import repeats, run_again
from harness.judgement.diagnosis.wording import factor_text
from harness.judgement.tolerance import epsilon_of

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search

#: Adding up computes, although it may be a join.
_MOVES = MOVES - {"AddN"}
#: So many wrong results after the first one are compared with the reference's.
_MOST = 24
#: The largest denominator of a fraction that counts as simple.
_LARGEST = 1000
#: A fraction whose numerator and denominator add up to more is reported as a decimal number.
_WRITTEN = 64
#: Joins of what the reference gives for the shards, and how they are reported.
_JOINED = (
    ("mean", "the mean over the shards"),
    ("weighted", "the mean over the shards"),
    ("sum", "the sum over the shards"),
    ("max", "the maximum over the shards"),
    ("min", "the minimum over the shards"),
)


def related(search: Search, found: Step) -> tuple[Step, str] | None:
    """The last of the wrong results, from ``found`` on, that are made of one result of the reference, and how.

    What is a multiple of the reference's result on the way to a right one is no fault: each of these results leads to a
    wrong one alone.
    """
    last: tuple[Step, str] | None = None
    of: Step | None = None
    is_join = False
    returned = {getattr(part, "_id", None) for part in search.flat}
    for step in _after(search, found):
        known = _simplest(search, step)
        if known is None:
            continue
        size, whole, text = known
        # A join tells more than a multiple, which may be one by chance.
        if is_join and whole is not of:
            break
        if not size and step.result is not None and returned.intersection(step.outputs):
            continue  # how a result itself is joined is a hypothesis of its own
        if of is not None and whole is not of and size:
            continue
        last, of, is_join = (step, f"it is {text}"), whole, not size
    if last is None:
        for name in found.inputs:
            # What devices have alike is no part of a shard.
            made = search.maker.get(name)
            alike = [] if made is None else [each.results[0] for each in search.groups[id(made)] if each.results]
            if made is None or search.status[name] != "part" or any(each is None for each in alike):
                continue
            arrays = [each for each in alike if each is not None]
            if all(equal(each, arrays[0]) for each in arrays) and (relation := _simplest(search, made)) is not None:
                return found, f"it reads the result of {named(made)}, which is {relation[2]}"
    return last


def right_with_constants(search: Search, step: Step, other: Step | None) -> bool:
    """Whether a step gives what ``other``, the reference's step in its place, gives if it has that one's constants."""
    if other is None or other.kind != step.kind or step.constants.keys().isdisjoint(other.constants):
        return False
    own = [search.read(step, number) for number in range(len(step.inputs))]
    inputs = [other.constants.get(number, array) for number, array in enumerate(own)]
    if any(array is None for array in own) or not repeats(step.kind):
        return False
    made = run_again(step, inputs, step.given)
    return (
        made is not None and not step.gave(made) and search.whole.index(other) in search.partners.of_reference(made[0])
    )


def _after(search: Search, found: Step) -> list[Step]:
    """The wrong results that are computed from ``found``, and that lead to a wrong result of the program."""
    leading: set[int] = set()
    waiting = [name for name in search.roots() if _is_wrong(search, name)]
    while waiting:
        name = waiting.pop()
        if name not in leading:
            leading.add(name)
            waiting += [each for each in search.sources(search.maker[name]) if _is_wrong(search, each)]
    reached: set[int] = set()
    steps: list[Step] = []
    for step in search.steps[search.order[id(found)] :]:
        if step is found or reached.intersection(step.inputs):
            reached.update(step.outputs)
            if leading.intersection(step.outputs) and step.place:
                steps.append(step)
    return steps[:_MOST]


def _is_wrong(search: Search, name: int) -> bool:
    return name in search.maker and search.status[name] in ("differs", "local", "moved")


def _simplest(search: Search, step: Step) -> tuple[int, Step, str] | None:
    """How simple a relation is, 0 for a join, to which op of the reference, and what is to be said.

    By chance, what is computed elsewhere may be a simple multiple: an op of the same line, or of the same type that
    reads the same, comes first.
    """
    read = search.read_there(step)

    def order(relation: tuple[int, Step, str]) -> tuple[bool, bool, int]:
        size, whole, _ = relation
        akin = whole.place == step.place or (whole.kind == step.kind and not read.isdisjoint(whole.inputs))
        return size != 0, not akin, size

    return min(_relations(search, step), key=order, default=None)


def _relations(search: Search, step: Step) -> Iterator[tuple[int, Step, str]]:
    """The ops of the reference whose result is made of the same numbers, how simple that is, and what is to be said."""
    mine = step.results[0] if step.results else None
    if mine is None or not mine.size or np.iscomplexobj(mine) or step.kind in _MOVES or not np.all(np.isfinite(mine)):
        return
    partners, mine = search.partners, _flat(mine)
    # What it reads right, times a number, says nothing.
    read = [partner.step for name in step.inputs if (partner := search.partner.get(name)) is not None]
    for number, whole in enumerate(search.whole):
        theirs = whole.results[0] if whole.results else None
        if (
            theirs is None
            or any(whole is each for each in read)
            or whole.kind in _MOVES | GIVEN
            or theirs.dtype != mine.dtype
        ):
            continue
        if (theirs := _flat(theirs)).shape != mine.shape:
            continue
        if partners.aligned and len(partners.shards) > 1 and not equal(mine, theirs):
            parts = [steps[number].results[0] for steps in partners.shards]
            if (how := _joined([_flat(part) for part in parts if part is not None], mine, partners.sizes)) is not None:
                text = f"{how} of what the reference's {named(whole)} gives for each shard"
                yield 0, whole, f"{text}, not what it gives for the whole batch"
        if (factor := _factor(mine, theirs)) is not None:
            size, text = _fraction(factor)
            yield size, whole, f"{text} times the result of {named(whole)} in the reference"


def _flat(array: Array) -> Array:
    """The same without axes of length 1, which joins may keep or not."""
    return array.reshape([size for size in array.shape if size != 1])


def _joined(parts: list[Array], mine: Array, sizes: Sequence[int]) -> str | None:
    if len(parts) < len(sizes) or any(part.shape != mine.shape for part in parts):
        return None
    if mine.dtype.kind == "b":
        every = {"AND": np.all(parts, axis=0), "OR": np.any(parts, axis=0)}
        apart = mine.size > 1 and not np.array_equal(every["AND"], every["OR"])
        return next(
            (f"the logical {how} over the shards" for how, b in every.items() if apart and equal(b, mine)), None
        )
    if not epsilon_of(mine.dtype) or any(equal(part, parts[0]) for part in parts[1:]):
        return None
    if any(equal(part, mine) for part in parts):
        return None  # what a shard has itself is no join
    made = ((text, Join(name).of(parts, sizes)) for name, text in _JOINED)
    return next((text for text, value in made if value is not None and equal(value, mine)), None)


def _factor(mine: Array, theirs: Array) -> float | None:
    """By which all elements differ, where there are several."""
    if not epsilon_of(mine.dtype) or mine.size < 2:
        return None
    want = theirs.astype(np.float64)
    # Equal numbers are a multiple of any others.
    if np.count_nonzero(want) < 2 or not np.ptp(want) > 1e-4 * np.max(np.abs(want)):
        return None
    factor = factor_of(mine.astype(np.float64), want)
    if factor is None or abs(factor) <= 1e-6 or abs(factor - 1.0) <= 1e-4:
        return None
    return factor if equal((factor * want).astype(mine.dtype), mine) else None


def _fraction(factor: float) -> tuple[int, str]:
    """The factor as people write it, and how large its numbers are."""
    near = Fraction(factor).limit_denominator(_LARGEST)
    if not near or abs(float(near) - factor) > 1e-6 * abs(factor):
        return _LARGEST**2, factor_text(round(factor, 6))
    size = abs(near.numerator) + near.denominator
    return size, str(near) if size <= _WRITTEN else factor_text(factor)
