"""Runs exchanges between machines by an engine: the schedule, and what looked bad again beside sound machines."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from harness.errors import UsageError
from harness.fleet.engines.engine import Done, Engine, MachineRun
from harness.fleet.links.judge import judge_links
from harness.fleet.links.record import (
    LINKS,
    LINKS_FILE,
    LinkPlan,
    LinkRun,
    Lost,
    keep,
    parse_report,
    reports_of,
)
from harness.fleet.links.schedule import Exchange, schedule
from harness.fleet.policy import Judging
from harness.fleet.run import kept_in, new_folder
from harness.fleet.seen import Seen
from harness.fleet.store import Store, plain_name
from harness.plural import plural
from harness.report.storage import save_json

#: The command that runs on each node, hidden from people.
COMMAND = ("fleet", "exchange")
#: How often what looks bad is done again.
_STAGES = 2
#: What engine and shell take, beyond the plan's own limits.
_GRACE_S = 60.0
#: The plan is an argument of a shell's command, which Linux limits to 128 KiB (MAX_ARG_STRLEN) with all that is around.
_LONGEST_PLAN = 120_000
_LAST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """What is exchanged, and how long it may take."""

    rounds: int = 3
    ring: int = 4
    sizes_bytes: tuple[int, ...] = (2**16, 2**22)
    port: int = 8520
    #: How much later than the first node the last one may start, and how long an exchange may take, in seconds.
    start_s: float = 120.0
    limit_s: float = 60.0


def start(engine: Engine, options: LinkOptions, store: Store, now: datetime) -> tuple[Path, LinkRun]:
    """Ask the engine for its machines, and make the folder of a new run.

    Raise UsageError for fewer than two machines, for more than there are ports or a command can name, and for a store
    that is not a folder.
    """
    _ = store.folder
    found = engine.machines()
    ready = [each.name for each in found if not each.why_not]
    left = tuple(Lost(each.name, each.why_not) for each in found if each.why_not)
    if len({*ready}) < 2:
        why = f" ({'; '.join(f'{each.machine}: {each.why}' for each in left[:5])})" if left else ""
        raise UsageError(f"{plural(len(ready), 'machine')} ready of {len(found)}{why}; links are between two or more")
    exchanges = schedule(ready, options.rounds, options.ring)
    asked = tuple(each.name for each in found)
    if options.port + len(asked) - 1 > _LAST_PORT:
        most = _LAST_PORT - len(asked) + 1
        raise UsageError(
            f"--port {options.port}: {plural(len(asked), 'machine')} need one each; accepted: up to {most}"
        )
    if len(_plan(engine, options, asked, dict(enumerate(exchanges))).packed()) > _LONGEST_PLAN:
        raise UsageError(
            f"{plural(len(ready), 'machine')}: their exchanges do not fit into a command; give fewer --rounds, or "
            "fewer machines, such as a few racks at a time"
        )
    folder = store.folder / new_folder(store, now, LINKS)
    run = LinkRun(now.isoformat(timespec="seconds"), engine.name, asked, exchanges, left)
    save_json(run, folder, LINKS_FILE)
    return folder, run


def carry_out(
    engine: Engine, options: LinkOptions, folder: Path, run: LinkRun, judging: Judging, runs: Sequence[Seen] = ()
) -> Generator[str, None, None]:
    """Run all exchanges, do again what looks bad, and yield what happens as lines. ``runs`` tell racks."""
    begin = 0
    for stage in range(1 + _STAGES):
        with kept_in(folder), contextlib.closing(_stage(engine, options, folder, run, begin, stage)) as outcomes:
            for machine, why in outcomes:
                if why:
                    run = replace(run, lost=(*run.lost, Lost(machine, why, stage)))
                    save_json(run, folder, LINKS_FILE)
                yield f"{machine}: {why or 'done'}"
        begin = len(run.exchanges)
        again = _again(folder, run, runs, judging) if stage < _STAGES else ()
        if not again:
            break
        run = replace(run, exchanges=(*run.exchanges, *again))
        save_json(run, folder, LINKS_FILE)
        yield f"doing again what looks bad, beside sound machines: {plural(len(again), 'exchange')}"
    save_json(replace(run, complete=True), folder, LINKS_FILE)


def _stage(
    engine: Engine, options: LinkOptions, folder: Path, run: LinkRun, begin: int, stage: int
) -> Generator[tuple[str, str], None, None]:
    own = dict(list(enumerate(run.exchanges))[begin:])
    first = min(each.round for each in own.values())
    exchanges = {number: replace(each, round=each.round - first) for number, each in own.items()}
    plan = _plan(engine, options, run.asked, exchanges)
    names = list(plan.nodes)
    finished = f"finished-{stage}.json"
    work = MachineRun(
        ("--finished", finished, plan.packed()), folder, plan.longest_s + _GRACE_S, len(names), COMMAND, finished
    )
    with contextlib.closing(engine.run(names, work)) as results:
        for done in results:
            yield done.machine, _kept(done, folder, run.exchanges, exchanges)


def _plan(engine: Engine, options: LinkOptions, asked: Sequence[str], exchanges: dict[int, Exchange]) -> LinkPlan:
    members = {name for each in exchanges.values() for name in each.members}
    ports = {name: options.port + number for number, name in enumerate(asked) if name in members}
    addresses = engine.addresses(list(ports))
    nodes = {name: (addresses[name], port) for name, port in ports.items()}
    return LinkPlan(secrets.token_hex(8), nodes, exchanges, options.sizes_bytes, options.start_s, options.limit_s)


def _kept(done: Done, folder: Path, everything: tuple[Exchange, ...], own: dict[int, Exchange]) -> str:
    """Keep the reports that an engine carries as text, and say why the machine did not come to its end."""
    place = folder / plain_name(done.machine)
    if done.text is None:
        return done.why
    reported, bad = set[int](), ""
    for line in done.text.splitlines():
        if line.startswith("{"):
            try:
                report = parse_report(line, done.machine, everything)
            except ValueError as error:
                bad = f"sent a report that is none: {error}"
                continue
            keep(report, place)
            reported.add(report.number)
    wanted = {number for number, each in own.items() if done.machine in each.members}
    return done.why or bad or ("" if wanted <= reported else "ended before its last exchange")


def _again(folder: Path, run: LinkRun, runs: Iterable[Seen], judging: Judging) -> tuple[Exchange, ...]:
    """Return what to do again, by what is in the folder of a run so far."""
    reports, _ = reports_of(Store(folder), run)
    racks = {seen.host: seen.rack for seen in runs if seen.rack}
    return judge_links(run.exchanges, reports, racks, judging, run.lost).again
