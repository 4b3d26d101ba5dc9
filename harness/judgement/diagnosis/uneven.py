"""Ops that some devices run and others do not, or more often, at a line that is meant to do the same on each device.

They tell where to look if the reference has nothing to compare with, as when it looks up in one op what the program
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

#: How the sentence about it begins.
AT_ONE_LINE = "at one line,"


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
    return step, f"{AT_ONE_LINE} {text}"


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
