"""Ops at a line that is meant to do the same on each device, of which one is odd.

Its device runs it more often, or not at all; or one run reads a constant out of line, or other rows. That tells where
to look if the reference has nothing to compare with, as when it looks up in one op what the program
adds up over the devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from harness.evidence.arithmetic import MOVEMENT
from harness.judgement.diagnosis.recorded import GIVEN, Step
from harness.judgement.diagnosis.wording import listed
from harness.plural import plural

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search
from typing import TYPE_CHECKING

import numpy as np

from harness.judgement.diagnosis.question import Array
from harness.judgement.diagnosis.recorded import MOVES, equal, titled
from harness.judgement.diagnosis.replays import run_from
from harness.judgement.diagnosis.wording import rows_text

#: Of fewer runs, two are evenly spaced always.
_FEWEST = 4
#: A step, which of its inputs, and the tensor that the same step on another device reads there.
_Reading = tuple[Step, int, int]


class _Uneven(NamedTuple):
    """A line that devices run in two ways: the fewer devices and the others, each with how often it runs which ops."""

    few: list[str]
    others: list[str]
    own: Counter[str]
    theirs: Counter[str]
    steps: list[Step]


def uneven_line(search: Search, expected: Step | None) -> tuple[Step, str] | None:
    """Find a line at which some devices run different ops than the others. Return one of these ops and a sentence.

    Stages of a pipeline differ rightly, and the first or the last shard may need one op more or fewer. So a line counts
    only if its ops read nothing that another device computed, and one op more or fewer counts only if no other device
    differs. Return ``None`` if one of these ops is ``expected``, what the reference runs there: to say so helps more.
    """
    found = list(_uneven(search))
    line = next((each for each in found if each.own - each.theirs and each.theirs - each.own), None)
    if line is None and len({(*each.few, bool(each.own - each.theirs)) for each in found}) == 1:
        line = found[-1]
    if line is None:
        return None
    more, less = line.own - line.theirs, line.theirs - line.own
    if expected is not None and expected.kind in more | less:
        return None
    kind = next(iter(more or less))
    step = next(each for each in line.steps if each.kind == kind)
    few, rest = listed(line.few), "the other devices" if len(line.others) > 1 else line.others[0]
    run, theirs = ("runs" if len(each) == 1 else "run" for each in (line.few, line.others))
    if line.own[kind] and line.theirs[kind]:
        text = _more_or_less(kind, line.few, line.own[kind], line.theirs[kind])
    elif more and less:
        text = f"{few} {run} {listed([*more])} where {rest} {theirs} {listed([*less])}"
    elif more:
        text = f"only {few} {run} {listed([*more])}"
    else:
        text = f"{'all devices but ' + few if len(line.others) > 1 else 'only ' + rest} {theirs} {listed([*less])}"
    return step, f"at one line, {text}"


def odd_count(search: Search, rows: Sequence[int]) -> tuple[Step, str] | None:
    """Find the first op that the devices of these rows run more or less often than all other devices do.

    Return the op and a sentence.
    """
    shards = {on: bool(set(own).intersection(rows)) for on, own in search.shards[1].items()}
    ours, theirs = ([on for on, odd in shards.items() if odd is each] for each in (True, False))
    runs = Counter((each.kind, each.place, each.on) for each in search.steps)
    for step in (each for each in search.steps if each.computes and len(theirs) > 1):
        own, others = ({runs[step.kind, step.place, on] for on in each} for each in (ours, theirs))
        if len(own) == len(others) == 1 and own != others and 0 not in own | others and step.place:
            return step, _more_or_less(step.kind, ours, max(own), max(others))
    return None


def _more_or_less(kind: str, few: Sequence[str], own: int, theirs: int) -> str:
    return f"{kind} runs {plural(own, 'time')} on {listed(few)}, but {plural(theirs, 'time')} on the other devices"


def _uneven(search: Search) -> Iterator[_Uneven]:
    behind = _computed_by(search)
    for runs in _lines(search):
        ways: dict[tuple[str, ...], list[str]] = {}
        for on, steps in runs.items():
            ways.setdefault(tuple(sorted(step.kind for step in steps)), []).append(on)
        if len(ways) == 2 and all(behind[id(step)] <= {on} for on, steps in runs.items() for step in steps):
            (usual, others), (odd, few) = sorted(ways.items(), key=lambda way: -len(way[1]))
            yield _Uneven(
                few, others, Counter(odd), Counter(usual), [each for steps in runs.values() for each in steps]
            )


def _computed_by(search: Search) -> dict[int, frozenset[str]]:
    """For each step, the devices that computed what it depends on, and its own."""
    found: dict[int, frozenset[str]] = {}
    for step in search.steps:
        own = {step.on} if step.kind not in MOVEMENT | GIVEN else set()
        found[id(step)] = frozenset(own).union(
            *(found.get(id(search.maker[name]), ()) for name in step.inputs if name in search.maker)
        )
    return found


def _lines(search: Search) -> Iterator[dict[str, list[Step]]]:
    """The forward ops on data of each line within device scopes, by device; not those that copy or reshape."""
    devices = [device.parsed.short for device in search.question.devices]
    lines: dict[str, dict[str, list[Step]]] = {}
    for step in search.steps:
        if step.place and step.on in devices and not step.gradient_of and step.kind not in MOVEMENT | GIVEN:
            runs = lines.setdefault(step.place, {on: [] for on in devices})
            if search.from_data.intersection(step.outputs):
                runs[step.on].append(step)
    host = devices[0]
    for runs in lines.values():
        # What only the first device runs may be outside of any scope.
        if any(steps for on, steps in runs.items() if on != host):
            yield runs


def out_of_line(search: Search) -> tuple[Step, str] | None:
    """The run whose constant alone is not evenly spaced with those of the others, and what is to be said.

    Shards of different sizes have offsets that are not evenly spaced. What the reference runs too is not for devices.
    """
    if len(set(search.partners.sizes)) > 1:
        return None
    for steps in _runs(search):
        for number in steps[0].constants:
            values = [each.constants[number].item() for each in steps if _is_whole(each.constants.get(number))]
            odd = unevenly_spaced(values) if len(values) == len(steps) else None
            if odd is not None:
                at, wanted = odd
                texts = listed([str(value) for value in values])
                runs = f"its {len(values)} runs read the constants {texts}"
                return steps[at], f"{runs}; evenly spaced, run {at + 1} would read {wanted} instead of {values[at]}"
    return None


def _runs(search: Search) -> Iterator[list[Step]]:
    """The steps of each line of the program's own, and of each type, that run as often as there are devices."""
    lines: dict[tuple[str, str | None], list[Step]] = {}
    for step in search.steps:
        if step.place not in search.shared and not step.gradient_of:
            lines.setdefault((step.kind, step.place), []).append(step)
    for steps in lines.values():
        if len(steps) == len(search.question.devices) >= _FEWEST and len({each.device for each in steps}) in (
            1,
            len(steps),
        ):
            yield steps


def _is_whole(array: np.ndarray | None) -> bool:
    return array is not None and array.size == 1 and array.dtype.kind in "iu"


def unevenly_spaced(values: Sequence[int]) -> tuple[int, int] | None:
    """Which of some numbers alone is not evenly spaced with the others, and what it would be.

    The first or the last number may be the next one around a ring, or that of a device at the end of a row, again.
    """
    found = []
    for at in range(len(values)):
        first, second = [number for number in range(len(values)) if number != at][:2]
        step, rest = divmod(values[second] - values[first], second - first)
        line = [values[first] + step * (number - first) for number in range(len(values))]
        unlike = [number for number, (one, other) in enumerate(zip(values, line, strict=True)) if one != other]
        around = step and (values[at] - line[at]) % (step * len(values)) == 0
        at_end = values[at] == (values[1] if at == 0 else values[-2] if at == len(values) - 1 else None)
        if step and not (rest or around or at_end) and unlike == [at]:
            found.append((at, line[at]))
    return found[0] if len(found) == 1 else None


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
