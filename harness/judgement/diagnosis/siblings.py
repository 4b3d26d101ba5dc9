"""Compares the shards with one another: what is done for one of them, and not in the same way for the others."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from harness.evidence.arithmetic import SPLITS
from harness.judgement.diagnosis.contrast import numbered
from harness.judgement.diagnosis.expected import counterpart
from harness.judgement.diagnosis.lookup import Rows, whole_and_rows
from harness.judgement.diagnosis.origins import named_steps
from harness.judgement.diagnosis.question import Array
from harness.judgement.diagnosis.recorded import GIVEN, MOVES, Step, equal, named, slack, titled
from harness.judgement.diagnosis.wording import listed

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search

#: These choose rows by their numbers.
_CHOICES = frozenset({"GatherV2", "GatherNd"})
#: These pass no gradient on.
_STOPS = frozenset({"StopGradient", "PreventGradient"})
#: These change the shape alone.
_SHAPES = frozenset({"Reshape", "ExpandDims", "Squeeze", "Identity"})


def odd_part(search: Search, join: Step) -> tuple[Step, str] | None:
    """Of a step that joins parts: the one that is the result of another op of the reference than the others are."""
    names, adds = search.addends(join), not search.sums.keys().isdisjoint(join.outputs)
    if not (adds or join.kind in MOVES) or any(search.status.get(name) == "differs" for name in names):
        return None
    makers = [(search.maker[name], search.value(name)) for name in names if name in search.maker]
    parts = [(step, search.partners.of_reference(array)) for step, array in makers if array is not None and array.ndim]
    counts = Counter(number for _, ops in parts for number in ops)
    if len(parts) < 2 or not counts:
        return None
    whole = search.whole
    wanted = {
        number
        for number in counts
        for _, leaf in search.wrong_outputs()
        for result in whole[number].results
        if equal(result, leaf.expected)
    }
    usual = max(counts, key=lambda number: (number in wanted, counts[number], number))
    odd = [(step, ops) for step, ops in parts if usual not in ops and ops and step.place]
    if not odd or len(odd) == len(parts):
        return None
    step, ops = odd[0]
    theirs = "the results of the other shards" if len(odd) == 1 else "the results of other shards"
    mine, other = (named(whole[number]) for number in (max(ops), usual))
    if mine == other:
        mine, other = (numbered(search, whole[number]) for number in (max(ops), usual))
    return step, f"its result is the reference's result of {mine}, but {theirs} are those of {other}"


def choosing(search: Search, join: Step) -> Step | None:
    """Of a step that only moves data: the first step behind it that makes wrong numbers, such as indices to rows."""
    steps = (search.maker[name] for name in search.behind_moves(join) if search.status[name] == "differs")
    found = (step for step in steps if step.kind not in MOVES and step.place)
    return min(found, key=lambda step: search.order[id(step)], default=None)


def wrong_indices(search: Search, step: Step) -> tuple[Step, str] | None:
    """A step that chooses other rows than the reference's step in its place, of which this one reads, and by which."""
    for choice in (search.maker[name] for name in search.behind_moves(step)):
        if choice.kind not in _CHOICES or choice.gradient_of or not choice.place:
            continue
        alike = [each for each in search.whole if (each.kind, each.gradient_of) == (choice.kind, "")]
        other = counterpart(search, choice, alike) or (alike[0] if len(alike) == 1 else None)
        rows, mine = search.rows_of_device(choice), search.read(choice, 1)
        if other is None or mine is None or not mine.ndim or _has_part(other.results[0], choice.results[0], rows):
            continue
        parts = _alike(search.read(other, 1), mine, rows)
        if parts and not any(equal(mine, part) for part in parts):
            at = tuple(index[0] for index in np.nonzero(mine != parts[-1]))
            maker = search.maker.get(choice.inputs[1])
            by = f", computed by {named(maker)}" if maker is not None and maker.place != choice.place else ""
            numbers = f"{mine[at]} instead of {parts[-1][at]}"
            return choice, f"it chooses different rows from the reference's: {numbers}{by}"
    return None


def _has_part(theirs: Array | None, mine: Array | None, rows: tuple[int, ...]) -> bool:
    """Whether a result is that of the reference, or has these rows of it; or is not known."""
    return mine is None or theirs is None or any(equal(mine, part) for part in _alike(theirs, mine, rows))


def _alike(theirs: Array | None, mine: Array, rows: tuple[int, ...]) -> list[Array]:
    """A result of the reference, and these rows of it, as far as they have the shape of ``mine``."""
    return [part for part in whole_and_rows(theirs, Rows(0, rows, 0)) if part.shape == mine.shape]


def rearranging(search: Search, join: Step) -> Step | None:
    """Of a step that joins right parts in a wrong way: the first step behind it that moves data as no other does."""
    found = []
    for name in search.tensors_behind(join, lambda _: True):
        step = search.maker[name]
        own = step.kind in MOVES - SPLITS and name in search.from_data and step.place
        if own and (_moved(search, name) or reordered(search, name)):
            found.append(step)
    # In another shape rows stand in their order: where rows are chosen by their numbers, rather these are wrong.
    chosen = [step for step in found if step.kind in _CHOICES and step.inputs[1] in search.maker]
    found = [step for step in found if step.kind not in _SHAPES] if chosen else found
    return min(found, key=lambda step: search.order[id(step)], default=None)


def is_rearranged(search: Search, step: Step) -> bool:
    """Whether a step that outputs are only moved from makes numbers that the reference's outputs have too.

    A choice of other rows makes numbers that the outputs need not have: those that it chooses from are the reference's.
    """
    if step.kind in _CHOICES and search.status.get(step.inputs[0], "differs") != "differs":
        return True
    reached = set(step.outputs)
    for each in search.steps[search.order[id(step)] :]:
        if each.kind in MOVES and reached.intersection(each.inputs):
            reached.update(each.outputs)
    have = step.result
    for name, leaf in search.wrong_outputs() if have is not None else ():
        want = leaf.expected
        if name not in reached or want is None or have is None or have.dtype != want.dtype or not want.size:
            continue
        if have.dtype.kind == "f" and np.all(np.isfinite(want)):
            ordered = np.sort(want, axis=None)
            at = np.searchsorted(ordered, have)
            off = np.min([np.abs(ordered[np.clip(at - back, 0, want.size - 1)] - have) for back in (0, 1)], axis=0)
            if np.any(off > slack(want)):
                return False
    return True


def _moved(search: Search, name: int) -> bool:
    return search.status[name] == "moved" and (array := search.value(name)) is not None and array.size > 1


def reordered(search: Search, name: int) -> bool:
    """Whether a tensor has rows of the reference in another order."""
    array = search.value(name)
    return (
        search.status[name] == "same"
        and array is not None
        and array.ndim > 0
        and bool(np.any(array != array[:1]))
        and not search.partners.in_order(array)
    )


def unread_result(search: Search) -> str:
    """The last result that is lost, where other results of the same step, or of the same on other devices, are read."""
    read = {name for step in search.steps for name in step.inputs}
    read |= {name for part in search.flat if (name := getattr(part, "_id", None)) is not None}
    for step in reversed(search.steps):
        group = search.groups[id(step)]
        wanted = {port for each in group for port, name in enumerate(each.outputs) if name in read}
        wanted = {*range(len(step.outputs))} if wanted and step.kind in SPLITS else wanted
        ports = (port for port in sorted(wanted) if step.outputs[port] not in read)
        lost = [port for port in ports if search.status[step.outputs[port]] != "given"]
        if lost and step.place:
            if len(step.outputs) > 1:
                return f"part {lost[-1]} of {named(step)}{'' if step.kind in SPLITS else f' on {step.on}'}"
            return f"the result of {named(step)} on {step.on}"
    return ""


def stopped_gradient(search: Search) -> tuple[Step, str] | None:
    """Where the program loses a gradient that the reference, or another device, has: at a step, and what is to be said.

    That is the first forward op on the way to one with a gradient that is on the tape no more.
    """
    steps, played = search.steps, search.steps.played
    leading: set[int] = set()
    for step in reversed(steps):
        if not step.gradient_of and (played.intersection(step.outputs) or leading.intersection(step.outputs)):
            leading.update(step.inputs)
    for step in steps:
        if step.gradient_of or step.result is None or not step.place or played.intersection(step.outputs):
            continue
        if not leading.intersection(step.outputs) or steps.watched.intersection(step.outputs):
            continue
        siblings = [each for each in search.groups[id(step)] if played.intersection(each.outputs)]
        if not (siblings or _has_gradient(search, step)):
            continue
        lost = [each.on for each in search.groups[id(step)] if not played.intersection(each.outputs)]
        on = f" on {listed(list(dict.fromkeys(lost)))}" if siblings else ""
        if not steps.watched.intersection(step.inputs):
            return step, f"the gradient stops at {step.kind}{on}, which no tape records"
        readers = (each for each in steps if step.outputs[0] in each.inputs)
        stop = next((each for each in readers if each.kind in _STOPS and each.place), step)
        return stop, f"the gradient stops at {stop.kind}{on}"
    return _lost_use(search, leading) or _never_asked(search)


def _never_asked(search: Search) -> tuple[Step, str] | None:
    """What a tape has recorded up to the end, as a loss, whose gradient only the reference asks for."""
    steps = search.steps

    def readers(step: Step) -> list[Step]:
        return [each for each in steps if not each.gradient_of and set(step.outputs) & set(each.inputs)]

    for step in steps:
        if step.gradient_of or step.result is None or not step.place or not steps.watched.intersection(step.outputs):
            continue
        goes_on = any(steps.watched.intersection(each.outputs) for each in readers(step))
        if steps.played.intersection(step.outputs) or goes_on or not _is_played_there(search, step):
            continue
        last = step
        while (after := next(iter(readers(last)), None)) is not None and _is_played_there(search, after):
            last = after
        return last, f"the gradient of {last.kind} is never asked for; the reference asks for it"
    return None


def _is_played_there(search: Search, step: Step) -> bool:
    """Whether the reference's ops of a step's line have gradients."""
    alike = [each for each in search.whole if (each.kind, each.place) == (step.kind, step.place)]
    alike = [each for each in alike if not each.gradient_of]
    return bool(alike) and all(search.whole.played.intersection(each.outputs) for each in alike)


def _lost_use(search: Search, leading: set[int]) -> tuple[Step, str] | None:
    """Where a use of a tensor passes no gradient on, though the same input of the reference's op does.

    Of several uses of a weight, say, one may lose its gradient while the others keep theirs. ``leading``: what ops read
    that have a gradient.
    """
    steps, whole = search.steps, search.whole
    for step in steps:
        known = search.partner.get(step.outputs[0]) if step.outputs else None
        other = known.step if known is not None else None
        if known is None or other is None or step.gradient_of:
            continue
        if other.kind != step.kind or len(other.inputs) != len(step.inputs):
            continue
        used = not (steps.played | leading).isdisjoint(step.outputs)
        if not used or whole.played.isdisjoint(other.outputs):
            continue
        for mine, theirs in zip(step.inputs, other.inputs, strict=True):
            own, there = search.value(mine), search.value(theirs)
            same = own is not None and any(equal(own, part) for part in whole_and_rows(there, known.rows))
            if same and theirs in whole.watched and mine not in steps.watched:
                stop = search.maker[mine]
                while not _stops(search, stop) and (before := _made_of(search, stop)) is not None:
                    stop = before
                if stop.place and _stops(search, stop):
                    reader = f"; {named(step)} passes no gradient on there, the reference's does"
                    return stop, f"the gradient stops at {stop.kind}{reader}"
    return None


def _stops(search: Search, step: Step) -> bool:
    """Whether a gradient is lost at a step: no tape watches what it makes, although one watches what it reads."""
    return step.kind in _STOPS or not search.steps.watched.isdisjoint(step.inputs)


def _made_of(search: Search, step: Step) -> Step | None:
    """The step that made what another one moves or computes on, where that is one tensor alone."""
    made = [search.maker[name] for name in step.inputs if name in search.maker and name in search.from_data]
    return made[0] if len(made) == 1 else None


def odd_reading(search: Search, step: Step, expected: Step | None) -> tuple[Step, str] | None:
    """The first step that reads a result of another op of the reference than the same step on other devices does.

    It leads to a step whose inputs seem to be equal: what it made is in the reference too, in another place.
    ``expected`` is what the reference runs there: where all devices do it in another way, what that reads tells which
    of them reads the right result.
    """
    group = search.groups[id(step)]
    right = next((each for each in group if not search.is_bad(each)), None)
    if right is None and expected is not None:
        read = [
            (len(there.intersection(expected.inputs)), each) for each in group if (there := search.read_there(each))
        ]
        most = max((count for count, _ in read), default=0)
        if fewer := [each for count, each in read if count < most]:
            step, right = fewer[0], next(each for count, each in read if count == most)
    found = None
    while right is not None:
        pairs = zip(step.inputs, right.inputs, strict=False)
        odd = next(((mine, theirs) for mine, theirs in pairs if _of_other_ops(search, mine, theirs)), None)
        if odd is None:
            break
        mine, theirs = (search.partner[name].step for name in odd)
        assert mine is not None
        assert theirs is not None
        lines = [pair for pair in zip_longest(mine.places, theirs.places) if pair[0] != pair[1]]
        if lines or mine.kind != theirs.kind:
            one, two = lines[0] if lines else (mine.place, theirs.place)
            it = f"its input equals the result of {titled(mine)} ({one}) in the reference"
            found = step, f"{it}, but on {right.on} it equals that of {titled(theirs)} ({two})"
        step, other = search.maker[odd[0]], search.maker[odd[1]]
        right = other if (step.kind, step.places) == (other.kind, other.places) else None
    return found if found is not None and found[0].place else None


def _of_other_ops(search: Search, mine: int, theirs: int) -> bool:
    one, other = search.partner.get(mine), search.partner.get(theirs)
    if one is None or other is None or one.step is None or other.step is None or one.step is other.step:
        return False
    return mine in search.maker and theirs in search.maker and one.step.kind not in MOVES | GIVEN


def _has_gradient(search: Search, step: Step) -> bool:
    """Whether the reference has a gradient of what a step makes, and the program makes it only once."""
    partner = search.partner.get(step.outputs[0])
    if partner is None or partner.step is None or not search.whole.played.intersection(partner.step.outputs):
        return False
    others = (each for each in search.steps if search.steps.played.intersection(each.outputs))
    return not any(equal(step.result, each.result) for each in others)


def zeros_instead(search: Search) -> tuple[Step, str] | None:
    """The step that makes zeros where what is joined with them is not zero, and what is to be said."""
    for join in search.steps:
        makers = [search.maker[name] for name in join.inputs if name in search.maker]
        parts = [step for step in makers if step.result is not None and step.result.size > 1]
        if join.kind not in ("AddN", "AddV2", "ConcatV2", "Pack") or len({step.result.shape for step in parts}) != 1:  # type: ignore[union-attr]
            continue
        zeros = [step for step in parts if not np.any(step.result) and step.place]
        if join.kind == "AddV2":
            # Sums begin with zeros that are not made of data.
            zeros = [step for step in zeros if step.outputs[0] in search.from_data]
        if 0 < len(zeros) < len(parts) and not _are_zeros_too(search, zeros[0]):
            where = f"{titled(zeros[0])} on {zeros[0].on}"
            return zeros[0], f"{where} gives only zeros, and {join.kind} joins them with inputs that are not zero"
    return None


def _are_zeros_too(search: Search, step: Step) -> bool:
    """Whether the reference's op of a line gives only zeros too."""
    there = [each.result for each in search.whole if (each.kind, each.place) == (step.kind, step.place)]
    return any(result is not None and not np.any(result) for result in there)


def unlike_siblings(search: Search, step: Step) -> str:
    """What a step reads from another op than the same step on devices that do it right."""
    right = next((each for each in search.groups[id(step)] if not search.is_bad(each)), None)
    if right is None:
        return ""
    if step.kind == "ReadVariableOp" and not search.written(step) and (before := search.written(right)):
        return f"no op writes to the variable before this read, but on {right.on} {named_steps(before)} does"
    for mine, theirs in zip(step.inputs, right.inputs, strict=False):
        one, other = search.maker.get(mine), search.maker.get(theirs)
        if one is not None and other is not None and (one.kind, one.places) != (other.kind, other.places):
            return f"it reads the result of {named(one)}, but on {right.on} it reads that of {named(other)}"
    return _from_another_device(search, step)


def _from_another_device(search: Search, step: Step) -> str:
    """What a step reads from another device, where all other devices read that of one device, or their own."""
    others = [each for each in search.groups[id(step)] if each is not step and len(each.inputs) == len(step.inputs)]
    for number, name in enumerate(step.inputs):
        made = search.maker.get(name)
        pairs = [(each.on, search.maker.get(each.inputs[number])) for each in others]
        makers = [maker.on for _, maker in pairs if maker is not None]
        if made is None or len(makers) < 2 or len(makers) < len(others):
            continue
        if len(set(makers)) == 1 and made.on != makers[0]:
            return f"it reads the result of {named(made)} on {made.on}, but on the other devices that on {makers[0]}"
        if all(maker is not None and maker.on == on for on, maker in pairs) and made.on != step.on:
            return f"it reads the result of {named(made)} on {made.on}, but each other device reads its own"
    return ""


def turn_of(search: Search, step: Step) -> str:
    """The line at which a step is called in another way than where the same line gives what the reference has."""
    path = step.places[::-1]
    found = 0
    for each in search.steps:
        if (each.kind, each.gradient_of, each.place) == (step.kind, step.gradient_of, step.place):
            alike = next(
                (at for at, pair in enumerate(zip(path, each.places[::-1], strict=False)) if len({*pair}) > 1), 0
            )
            found = max(found, alike if not search.is_bad(each) else 0)
    return path[found] if found else ""
