"""Ops that some devices run and others do not, at a line that is meant to do the same on each device.

They tell where to look if the reference has nothing to compare with, as when it looks up in one op what the program
adds up over the devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from harness.judgement.arithmetic import MOVEMENT
from harness.judgement.diagnosis.recorded import GIVEN, Step
from harness.judgement.diagnosis.wording import listed

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search

#: How the sentence about it begins.
AT_ONE_LINE = "at one line,"


class _Uneven(NamedTuple):
    """A line that devices run in two ways: the fewer devices and the others, and the op types that only these run."""

    few: list[str]
    others: list[str]
    own: list[str]
    theirs: list[str]
    steps: list[Step]


def uneven_line(search: Search, expected: Step | None) -> tuple[Step, str] | None:
    """Find a line at which some devices run other ops than the others: one of these ops, and the text that says so.

    Stages differ, and the first or the last shard may have an op more or less than the others. So a line counts only if
    its ops read nothing that another device computed, and one op more or less only if no other device differs. If the
    reference runs one of these ops there (``expected``), that says more.
    """
    found = [each for each in _uneven(search) if all(map(partial(_is_separate, search), each.steps))]
    line = next((each for each in found if each.own and each.theirs), None)
    if line is None and len({(*each.few, bool(each.own)) for each in found}) == 1:
        line = found[-1]
    if line is None or (expected is not None and expected.kind in line.own + line.theirs):
        return None
    kinds = line.own or line.theirs
    step = next(each for each in line.steps if each.kind in kinds and (each.on in line.few) == bool(line.own))
    few, other = listed(line.few), line.others[0]
    if line.own and line.theirs:
        run = "runs" if len(line.few) == 1 else "run"
        rest = f"{other} runs" if len(line.others) == 1 else "the other devices run"
        text = f"{few} {run} {listed(line.own)} where {rest} {listed(line.theirs)}"
    elif line.own:
        text = f"only {few} {'runs' if len(line.few) == 1 else 'run'} {listed(kinds)}"
    elif len(line.others) == 1:
        text = f"only {other} runs {listed(kinds)}"
    else:
        text = f"all devices but {few} run {listed(kinds)}"
    return step, f"{AT_ONE_LINE} {text}"


def _uneven(search: Search) -> Iterator[_Uneven]:
    for runs in _lines(search):
        ways: dict[tuple[str, ...], list[str]] = {}
        for on, steps in runs.items():
            ways.setdefault(tuple(step.kind for step in steps), []).append(on)
        if len(ways) == 2:
            (usual, others), (odd, few) = sorted(ways.items(), key=lambda way: -len(way[1]))
            own, theirs = ([*(Counter(one) - Counter(two))] for one, two in ((odd, usual), (usual, odd)))
            if own or theirs:
                yield _Uneven(few, others, own, theirs, [step for steps in runs.values() for step in steps])


def _is_separate(search: Search, step: Step) -> bool:
    """Whether no other device computed anything that a step depends on."""
    seen, new = {id(step)}, [step]
    while new:
        made = [search.maker[name] for each in new for name in each.inputs if name in search.maker]
        new = [each for each in {id(each): each for each in made}.values() if id(each) not in seen]
        seen.update(map(id, new))
        if any(each.on != step.on and each.kind not in MOVEMENT | GIVEN for each in new):
            return False
    return True


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
