"""What is known now of the links between machines: of each the newest result, whichever run of exchanges it is of.

Each run is judged by itself, as a machine that is mended since may have been the cause. A finding of an earlier run
holds until what it accuses has been tested again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from harness.fleet.links.judge import judge_links
from harness.fleet.links.record import LinkRun, Report, reports_of, runs_of
from harness.fleet.links.verdict import LinkFinding, LinkVerdict, Scope
from harness.fleet.policy import Judging
from harness.fleet.seen import Seen
from harness.fleet.store import LeftOut, Store

#: Runs of exchanges that are looked at: judging one of 1,000 machines takes about a second.
_MOST_RUNS = 10
_BETWEEN_TWO = (Scope.LINK, Scope.UNCLEAR)


def newest_verdict(store: Store, runs: Iterable[Seen], judging: Judging) -> tuple[LinkVerdict | None, list[LeftOut]]:
    """Judge the newest run of exchanges in a store, with what earlier runs found and nobody has tested again since.

    ``runs`` tell racks. The counts are those of the newest run. Return ``None`` if there is none.
    """
    found, bad = runs_of(store)
    racks = {seen.host: seen.rack for seen in runs if seen.rack}
    verdict: LinkVerdict | None = None
    tested: set[frozenset[str]] = set()
    for prefix, run in found[:_MOST_RUNS]:
        if verdict is not None and {frozenset(each.members) for each in run.exchanges} <= tested:
            continue
        reports, unread = reports_of(store, run, prefix)
        bad += unread
        own = judge_links(run.exchanges, reports, racks, judging, run.lost).verdict
        verdict = own if verdict is None else _with_earlier(verdict, own, run.started_at, tested)
        tested |= _tested(run, reports)
    return verdict, bad


def _with_earlier(
    verdict: LinkVerdict, earlier: LinkVerdict, started_at: str, tested: set[frozenset[str]]
) -> LinkVerdict:
    known = {(each.fault, each.scope, each.machines) for each in verdict.findings}
    since = frozenset[str]().union(*tested)
    kept = [
        replace(each, run=started_at)
        for each in earlier.findings
        if each.confirmed and (each.fault, each.scope, each.machines) not in known and not _is_old(each, tested, since)
    ]
    return replace(verdict, findings=(*verdict.findings, *kept))


def _is_old(finding: LinkFinding, tested: set[frozenset[str]], since: frozenset[str]) -> bool:
    """Whether what a finding accuses has been tested since. ``since``: the machines that took part in newer runs."""
    if finding.scope in _BETWEEN_TWO:
        return frozenset(finding.machines) in tested
    if finding.scope is Scope.NODE:
        return finding.machines[0] in since
    # Of a rack, a newer test of one machine says something; the whole fleet is that of the newest run.
    return finding.scope is not Scope.RACK or not since.isdisjoint(finding.inside)


def _tested(run: LinkRun, reports: Sequence[Report]) -> set[frozenset[str]]:
    """Return the members of each exchange that came to a result: all have reported, or one of them why it failed."""
    count = Counter(each.number for each in reports)
    failed = {each.number for each in reports if each.state == "failed"}
    return {
        frozenset(run.exchanges[number].members)
        for number in count
        if number in failed or count[number] == len(run.exchanges[number].members)
    }
