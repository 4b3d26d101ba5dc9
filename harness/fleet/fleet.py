"""From a store to a verdict on the fleet: the newest run of each machine, judged beside the others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from harness.fleet import asked
from harness.fleet.accuse import accusations_of
from harness.fleet.actions import Action
from harness.fleet.history import offenders, trends
from harness.fleet.index import Loaded, load
from harness.fleet.judge import FleetFindings, bare, judge
from harness.fleet.links.accuse import WHY, accusations as link_accusations, shared_causes
from harness.fleet.links.newest import newest_verdict
from harness.fleet.links.verdict import LinkVerdict
from harness.fleet.policy import Policy
from harness.fleet.seen import Seen
from harness.fleet.store import LeftOut, Store, plain_name
from harness.fleet.verdicts import Accusation, Counts, FleetMachine, FleetVerdict, State, Versions
from harness.records import Verdict
from harness.report.printable import one_line, shortened

#: Clocks that are further ahead are wrong.
_AHEAD = timedelta(hours=24)
_LONGEST = 200


def judge_store(store: Store, policy: Policy, now: datetime, loaded: Loaded | None = None) -> FleetVerdict:
    """Judge all records of a store. ``now`` tells what lies in the future, and which exceptions of the policy hold."""
    loaded = load(store) if loaded is None else loaded
    prefix, run, bad = asked.newest(store)
    links, unread = newest_verdict(store, loaded.runs, policy.judging)
    left_out = (*loaded.left_out, *bad, *unread)
    found = judge_runs(loaded.runs, policy, now, run=run, prefix=prefix, left_out=left_out, links=links)
    return found if loaded.unwritten is None else _noted(found, loaded)


def _noted(found: FleetVerdict, loaded: Loaded) -> FleetVerdict:
    why = f"the index of the store could not be written ({loaded.unwritten}): the next report takes as long"
    return replace(found, notes=(*found.notes, why))


def judge_runs(
    runs: Sequence[Seen],
    policy: Policy,
    now: datetime,
    *,
    run: asked.FleetRun | None = None,
    prefix: str = "",
    left_out: Sequence[LeftOut] = (),
    links: LinkVerdict | None = None,
) -> FleetVerdict:
    """Judge runs of many machines, of each the newest, with the exchanges between them."""
    left = list(left_out)
    by_host: dict[str, list[Seen]] = defaultdict(list)
    for seen in runs:
        if seen.started is not None and seen.started > now + _AHEAD:
            left.append(LeftOut(seen.path, f"started at {seen.record.started_at}, in the future: a clock is wrong"))
        else:
            by_host[seen.host].append(seen)
    for own in by_host.values():
        own.sort(key=lambda each: (each.started or datetime.min.replace(tzinfo=timezone.utc), each.path))
    newest = [by_host[host][-1] for host in sorted(by_host)]
    missing = _missing(run, prefix, by_host)
    judged = judge([each for each in newest if each.host not in missing], policy, now.date())
    of_links = list(link_accusations(links))
    accusations: list[Accusation] = []
    machines: list[FleetMachine] = []
    for number, seen in enumerate(judged.runs):
        accused = accusations_of(
            seen,
            bare(seen, judged.findings.get(number, ())),
            judged.outliers.get(number, ()),
            by_host[seen.host][:-1],
            judged.compared.cohorts,
            policy,
        )
        accused += [each for each in of_links if each.machine == seen.host]
        accusations += accused
        machines.append(_machine(seen, accused, shared=number in judged.sharing))
    machines += [FleetMachine(name, State.MISSING, why) for name, why in missing.items()]
    known = {each.name for each in machines}
    rest = {each.machine for each in of_links} - known
    machines += [FleetMachine(name, State.ACTION, WHY) for name in rest]
    accusations += [each for each in of_links if each.machine in rest | missing.keys()]
    machines.sort(key=lambda each: each.name)
    order = {action: rank for rank, action in enumerate(Action)}
    accusations.sort(key=lambda each: (order[each.action], -each.findings, each.machine, each.labels))
    return FleetVerdict(
        _counts(machines),
        tuple(machines),
        tuple(_with_controls(accusations, judged, machines)),
        (*judged.shared, *shared_causes(links)),
        tuple(trends(by_host, policy.judging)),
        tuple(offenders(by_host)),
        tuple(_versions(judged.runs)),
        tuple(sorted(left, key=lambda each: each.path)),
        tuple(judged.notes),
        tuple(judged.accepted),
        judged.compared.judged,
        judged.compared.too_few,
        links,
    )


def _missing(run: asked.FleetRun | None, prefix: str, by_host: Mapping[str, Sequence[Seen]]) -> dict[str, str]:
    """Return the machines that the newest run asked for and has no record of, and why."""
    if run is None:
        return {}
    why = {each.machine: each.why for each in run.outcomes if each.why}
    folders = {plain_name(name): name for name in run.asked}
    done = set[str]()
    for own in by_host.values():
        for seen in own:
            if seen.path.startswith(prefix):
                done |= {seen.host, folders.get(seen.path.removeprefix(prefix).partition("/")[0], seen.host)}
    found = {}
    for name in dict.fromkeys(run.asked):
        if name not in done:
            before = by_host[name][-1].record.started_at if name in by_host else ""
            last = f"; its last result is of {before}" if before else ""
            found[name] = f"{why.get(name) or 'no result in the last run'}{last}"
    return found


def _machine(seen: Seen, accusations: Sequence[Accusation], *, shared: bool) -> FleetMachine:
    record, cohort = seen.record, seen.cohort
    why = ""
    if any(each.pressing for each in accusations):
        state = State.ACTION
        why = WHY if all(each.source == "links" for each in accusations if each.pressing) else ""
    elif shared:
        state = State.SHARED
    elif not seen.exercised or not record.complete or seen.unproven:
        state = State.INCOMPLETE
        why = _why_incomplete(seen)
    else:
        state = State.PROVEN
    names = Counter(card.name for card in record.cards)
    return FleetMachine(
        seen.host,
        state,
        why,
        seen.path,
        record.started_at,
        seen.rack or "",
        shortened(", ".join(f"{count} x {name}" for name, count in names.items()), _LONGEST),
        cohort.driver if cohort is not None else "",
        shortened(cohort.vbios, _LONGEST) if cohort is not None else "",
        record.harness,
        str(record.verdict),
        seen.exercised,
        True,
        record.described,
        tuple(f"{one_line(each.check)} {each.verdict}" for each in record.results),
    )


def _why_incomplete(seen: Seen) -> str:
    if not seen.record.results:
        return shortened(seen.record.spec_reason or "the run ended before its first result", _LONGEST)
    if not seen.exercised:
        return "nothing was exercised"
    if seen.unproven:
        return shortened(f"no verdict of {', '.join(seen.unproven)}", _LONGEST)
    return "the run was interrupted after its last check"


def _counts(machines: Sequence[FleetMachine]) -> Counts:
    states = Counter(each.state for each in machines)
    return Counts(
        asked=len(machines),
        reached=sum(each.reached for each in machines),
        exercised=sum(each.exercised for each in machines),
        proven=states[State.PROVEN],
        action=states[State.ACTION],
        shared=states[State.SHARED],
        incomplete=states[State.MISSING] + states[State.INCOMPLETE],
    )


def _with_controls(
    accusations: Sequence[Accusation], judged: FleetFindings, machines: Sequence[FleetMachine]
) -> list[Accusation]:
    """Name a proven machine of the same cohort for what has to be run again, if possible of the same rack."""
    proven = {each.name for each in machines if each.state is State.PROVEN}
    runs = {seen.host: seen for seen in judged.runs}
    made = []
    for each in accusations:
        control = ""
        if each.action is Action.RERUN:
            own = runs[each.machine]
            alike = [seen for seen in judged.runs if seen.host in proven and seen.cohort == own.cohort]
            control = min(alike, key=lambda seen: (seen.rack != own.rack, seen.host)).host if alike else ""
        made.append(replace(each, control=control))
    return made


def _versions(runs: Sequence[Seen]) -> list[Versions]:
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for seen in runs:
        found, cohort = seen.record.fingerprint, seen.cohort
        counted["harness"][seen.record.harness] += 1
        if found is not None:
            facts = {"TensorFlow": found.tensorflow, "CUDA": found.cuda, "operating system": found.operating_system}
            for fact, value in facts.items():
                counted[fact][one_line(value or "unknown")] += 1
        if cohort is not None:
            for fact, value in {"cards": cohort.card, "driver": cohort.driver, "VBIOS": cohort.vbios}.items():
                counted[fact][one_line(value)] += 1
    return [
        Versions(fact, tuple(sorted(values.items(), key=lambda item: (-item[1], item[0]))))
        for fact, values in counted.items()
        if len(values) > 1
    ]


def verdict_of(found: FleetVerdict) -> Verdict:
    """Return the verdict on a fleet as a whole."""
    return {0: Verdict.PASS, 1: Verdict.FAIL}.get(found.exit_code, Verdict.UNKNOWN)
