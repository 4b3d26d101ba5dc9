"""The page of a fleet: one file without scripts, what needs an action first."""

from __future__ import annotations

from harness.fleet.actions import MEANING
from harness.fleet.fleet import verdict_of
from harness.fleet.summary import denominator, offender_line, version_line
from harness.fleet.verdicts import FleetVerdict, State
from harness.report.html.environment import render


def fleet_page(found: FleetVerdict, judging: str) -> str:
    """Write the verdict as one self-contained HTML file; the same verdict gives the same bytes."""
    machines = {each.name: each for each in found.machines}
    return render(
        "fleet.html.j2",
        package="harness.fleet",
        brand="harness fleet",
        title=f"{verdict_of(found)}: {found.counts.action} of {found.counts.asked} machines need an action",
        verdict=verdict_of(found),
        found=found,
        counts=_counts(found),
        denominator=denominator(found),
        actions=[(action, MEANING[action], own) for action, own in found.by_action()],
        machines=machines,
        unproven=[each for each in found.machines if each.state in (State.MISSING, State.INCOMPLETE)],
        offenders=[offender_line(each) for each in found.offenders],
        versions=[version_line(each.fact, each.values) for each in found.versions],
        described=any(each.described for each in found.machines),
        judging=judging,
    )


def _counts(found: FleetVerdict) -> list[tuple[str, int]]:
    counts = found.counts
    return [
        ("asked", counts.asked),
        ("reached", counts.reached),
        ("exercised", counts.exercised),
        ("proven", counts.proven),
        ("need an action", counts.action),
        ("only a shared fault", counts.shared),
        ("without a verdict", counts.incomplete),
    ]
