"""Ops that some devices run and others do not, at a line that is meant to do the same on each device.

They tell where to look if the reference has nothing to compare with, as when it looks up in one op what the program
adds up over the devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.judgement.arithmetic import MOVEMENT
from harness.judgement.diagnosis.recorded import GIVEN, Step
from harness.judgement.diagnosis.wording import listed

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search

#: How the sentence about it begins.
AT_ONE_LINE = "at one line,"


def other_at_a_line(search: Search) -> tuple[Step, str] | None:
    """Find the first line at which some devices run another op than the others: the op, and the text that says so."""
    for runs in _lines(search):
        ways: dict[tuple[str, ...], list[str]] = {}
        for on, steps in runs.items():
            ways.setdefault(tuple(step.kind for step in steps), []).append(on)
        if len(ways) == 2 and () not in ways:
            (usual, others), (odd, few) = sorted(ways.items(), key=lambda way: -len(way[1]))
            own, theirs = ([*(Counter(one) - Counter(two))] for one, two in ((odd, usual), (usual, odd)))
            if own and theirs:
                step = next(each for each in runs[few[0]] if each.kind in own)
                rest = others[0] if len(others) == 1 else "the other devices"
                run, there = ("runs" if len(each) == 1 else "run" for each in (few, others))
                return step, f"{AT_ONE_LINE} {listed(few)} {run} {listed(own)} where {rest} {there} {listed(theirs)}"
    return None


def missing_on_a_device(search: Search) -> str:
    """Say which op all devices but one run, if there is such a line."""
    for runs in _lines(search):
        lacking = {on: [*(_common(runs, on) - Counter(step.kind for step in runs[on]))] for on in runs}
        absent = [on for on, kinds in lacking.items() if kinds]
        if len(absent) == 1 and len(runs) > 2:
            place = next(step.place for steps in runs.values() for step in steps)
            return f"all devices but {absent[0]} run {lacking[absent[0]][-1]} at {place}"
    return ""


def _common(runs: dict[str, list[Step]], but: str) -> Counter[str]:
    """The op types that all devices but one run, as often as each of them does."""
    counts = [Counter(step.kind for step in steps) for on, steps in runs.items() if on != but]
    common = counts[0] if counts else Counter()
    for each in counts[1:]:
        common &= each
    return common


def _lines(search: Search) -> Iterator[dict[str, list[Step]]]:
    """The forward ops on data of each line that several devices run, by device; not those that copy or reshape."""
    devices = [device.parsed.short for device in search.question.devices]
    lines: dict[str, dict[str, list[Step]]] = {}
    for step in search.steps:
        if step.place and step.on in devices and not step.gradient_of and step.kind not in MOVEMENT | GIVEN:
            lines.setdefault(step.place, {on: [] for on in devices})
            if search.from_data.intersection(step.outputs):
                lines[step.place][step.on].append(step)
    yield from (runs for runs in lines.values() if sum(map(bool, runs.values())) > 1)
