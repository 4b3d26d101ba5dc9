"""The verdict on a fleet for a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from harness.fleet.actions import MEANING
from harness.fleet.fleet import verdict_of
from harness.fleet.verdicts import Accusation, FleetVerdict, Offender, SharedCause, State
from harness.plural import plural
from harness.report.printable import one_line, shortened
from harness.report.storage import json_text
from harness.report.terminal import print_line

if TYPE_CHECKING:
    from rich.console import Console

#: Lines shown of each list in a terminal; the page and JSON have all.
_MOST = 20
_LONGEST = 160
#: Version of the JSON form.
SCHEMA_VERSION = 1
_METHOD = (
    "outliers: {judged} values judged by the median and the scaled median absolute deviation of their cohort, "
    "at least {floor:g}% of the median; false discovery rate {rate:g}% (Benjamini and Hochberg, 1995); nearer than "
    "{effect:g}% to the median is no outlier; {few} values had too few others to compare with"
)


def denominator(found: FleetVerdict) -> str:
    """Say how many machines were asked, reached, exercised and proven, and how many need something."""
    counts = found.counts
    parts = [
        f"{plural(counts.asked, 'machine')} asked",
        f"{counts.reached:,} reached",
        f"{counts.exercised:,} exercised",
        f"{counts.proven:,} proven",
    ]
    more = [
        text
        for count, text in (
            (counts.action, f"{counts.action:,} {'needs' if counts.action == 1 else 'need'} an action"),
            (counts.shared, f"{counts.shared:,} have only a fault that many share"),
            (counts.incomplete, f"{counts.incomplete:,} without a verdict"),
        )
        if count
    ]
    return "; ".join([", ".join(parts), *more])


def headline(found: FleetVerdict) -> str:
    """Return the verdict in a line."""
    links = found.links
    incomplete = "" if found.counts.complete and (links is None or links.complete) else ", INCOMPLETE"
    between = f"; between machines: {plural(len(links.findings), 'finding')}" if links and links.findings else ""
    described = any(each.described for each in found.machines)
    note = " (with described machines, not real hardware)" if described else ""
    return f"{verdict_of(found)}{incomplete}: {denominator(found)}{between}{note}"


def method(found: FleetVerdict, rate: float, floor: float, effect: float) -> str:
    """Say how outliers were judged."""
    if not found.judged_values:
        return f"outliers: nothing was compared ({plural(found.values_too_few, 'value')} had too few others)"
    return _METHOD.format(
        judged=f"{found.judged_values:,}",
        floor=100 * floor,
        rate=100 * rate,
        effect=100 * effect,
        few=f"{found.values_too_few:,}",
    )


def print_fleet(console: Console, found: FleetVerdict, judging: str) -> None:
    """Print the verdict, the machines that need an action, what many share, and what was left out."""
    print_line(console, headline(found))
    for action, own in found.by_action():
        machines = len({each.machine for each in own})
        print_line(console, "")
        print_line(console, f"{action} ({plural(machines, 'machine')}): {MEANING[action]}")
        _print_some(console, [line for each in own for line in _accusation(each)], 3 * _MOST)
    if found.shared:
        print_line(console, "")
        print_line(console, "faults that many machines share (no machine is accused of them):")
        _print_some(console, [line for each in found.shared for line in _shared(each)], 3 * _MOST)
    unproven = [each for each in found.machines if each.state in (State.MISSING, State.INCOMPLETE)]
    sections = (
        ("between machines:", [] if found.links is None else list(found.links.lines(shared=False))),
        ("without a verdict:", [f"{each.name}: {each.why}" for each in unproven]),
        ("cards that failed in several runs:", [offender_line(each) for each in found.offenders]),
        ("figures that got worse:", [f"{each.machine}, {each.card}: {each.text}" for each in found.trends]),
        ("versions that differ:", [version_line(each.fact, each.values) for each in found.versions]),
        ("accepted by the policy:", found.accepted),
        ("files left out:", [f"{each.path}: {each.why}" for each in found.left_out]),
    )
    for title, lines in sections:
        if lines:
            print_line(console, "")
            print_line(console, title)
            _print_some(console, [f"  {one_line(line)}" for line in lines], _MOST)
    print_line(console, "")
    for note in (*found.notes, judging):
        print_line(console, one_line(note))


def offender_line(each: Offender) -> str:
    """Return a card that failed in several runs, in a line."""

    where = "; ".join(each.places[:3])
    return f"{each.card}: failed in {each.failed} of {plural(each.runs, 'run')}, at {where}"


def version_line(fact: str, values: Sequence[tuple[str, int]]) -> str:
    """Return the values of a fact, each with how many machines have it."""
    shown = ", ".join(f"{value} ({count:,})" for value, count in values[:5])
    more = f", and {len(values) - 5} more" if len(values) > 5 else ""
    return f"{fact}: {shown}{more}"


def fleet_json(found: FleetVerdict) -> str:
    """Write the verdict as JSON: the same records give the same text."""
    from harness.runner.messages import plain

    body = plain(found)
    assert isinstance(body, dict)
    return json_text(
        {
            "schema_version": SCHEMA_VERSION,
            "verdict": str(verdict_of(found)),
            "complete": found.counts.complete,
            "exit_code": int(found.exit_code),
            **body,
        }
    )


def _accusation(each: Accusation) -> Iterator[str]:
    yield f"  {one_line(each.machine)}: {one_line(each.subject)}"
    more = each.findings - len(each.reasons)
    for number, reason in enumerate(each.reasons, start=1):
        rest = f" (and {plural(more, 'more finding')})" if more > 0 and number == len(each.reasons) else ""
        yield f"      {shortened(reason, _LONGEST)}{rest}"
    if each.confirmed:
        yield f"      {each.confirmed}"
    if each.control:
        yield f"      run it again beside {one_line(each.control)}"


def _shared(each: SharedCause) -> Iterator[str]:
    yield f"  {one_line(each.common)}: {len(each.machines):,} of {plural(each.of, 'machine')}: {each.action}"
    yield from (f"      {shortened(reason, _LONGEST)}" for reason in each.reasons)


def _print_some(console: Console, lines: Sequence[str], most: int) -> None:
    for line in lines[:most]:
        print_line(console, line)
    if len(lines) > most:
        print_line(console, f"  and {len(lines) - most:,} more lines, in the page and in --json")
