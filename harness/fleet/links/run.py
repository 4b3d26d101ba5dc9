"""Runs exchanges between machines by an engine: the schedule, and what looked bad again beside sound machines."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from harness.errors import UsageError
from harness.fleet.engines.engine import Done, Engine, MachineRun
from harness.fleet.files import Files, LocalFiles
from harness.fleet.links.judge import judge_links
from harness.fleet.links.record import (
    LINKS,
    SUFFIX,
    LinkPlan,
    LinkRun,
    Lost,
    keep,
    measured,
    parse_report,
    reports_of,
    runs_of,
    save,
)
from harness.fleet.links.schedule import Exchange, schedule
from harness.fleet.policy import Judging
from harness.fleet.run import kept_in, new_folder
from harness.fleet.seen import Seen
from harness.fleet.store import Store, plain_name
from harness.plural import plural

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


def start(engine: Engine, options: LinkOptions, store: Store, now: datetime) -> tuple[Files, LinkRun]:
    """Ask the engine for its machines, and make a new run, with its files.

    Raise UsageError for fewer than two machines, and for more than there are ports or a command can name.
    """
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
    files = store.files.below(new_folder(store, now, LINKS))
    run = LinkRun(now.isoformat(timespec="seconds"), engine.name, asked, exchanges, left)
    save(run, files)
    return files, run


def resume(engine: Engine, store: Store) -> tuple[Files, LinkRun]:
    """Return the newest run of a store, to be continued with the exchanges that were not measured.

    The engine is asked for its machines again. Raise UsageError if the newest run was not interrupted.
    """
    found, _ = runs_of(store)
    if not found or found[0][1].complete:
        raise UsageError(f"store {store.name}: no exchanges that were interrupted")
    prefix, run = found[0]
    files = store.files.below(prefix.rstrip("/"))
    done = measured(run, reports_of(Store(files), run)[0])
    stage = max(each.stage for each in run.exchanges)
    attempt = 1 + max(each.attempt for each in run.exchanges if each.stage == stage)
    exchanges = tuple(
        replace(each, attempt=attempt) if each.stage == stage and number not in done else each
        for number, each in enumerate(run.exchanges)
    )
    members = {name for each in exchanges if each.attempt == attempt for name in each.members}
    ready = {each.name: each.why_not for each in engine.machines()}
    why = {name: ready.get(name, "unknown to the engine now") for name in run.asked if name in members}
    lost = [each for each in run.lost if each.stage < stage or each.machine not in members]
    lost += [Lost(name, each, stage, attempt) for name, each in why.items() if each]
    return files, replace(run, exchanges=exchanges, lost=tuple(lost))


def carry_out(
    engine: Engine,
    options: LinkOptions,
    files: Files,
    run: LinkRun,
    judging: Judging,
    runs: Sequence[Seen] = (),
    folder: Path | None = None,
) -> Generator[str, None, None]:
    """Run all exchanges that are not measured, do again what looks bad, and yield what happens as lines.

    ``runs`` tell racks. ``folder`` is where the machines write, if the engine needs one: by default that of ``files``.
    """
    folder = folder or (files.folder if engine.needs_folder else Path())
    racks = {seen.host: seen.rack for seen in runs if seen.rack}
    for stage in range(max(each.stage for each in run.exchanges), 1 + _STAGES):
        save(run, files)
        own = _left(run, files, stage)
        with kept_in(files.name), contextlib.closing(_stage(engine, options, files, folder, run, own)) as outcomes:
            for lost in outcomes:
                if lost.why:
                    run = replace(run, lost=(*run.lost, lost))
                    save(run, files)
                yield f"{lost.machine}: {lost.why or 'done'}"
        again: tuple[Exchange, ...] = ()
        if stage < _STAGES:
            again = judge_links(run.exchanges, reports_of(Store(files), run)[0], racks, judging, run.lost).again
        if not again:
            break
        run = replace(run, exchanges=(*run.exchanges, *again))
        yield f"doing again what looks bad, beside sound machines: {plural(len(again), 'exchange')}"
    save(replace(run, complete=True), files)


def _left(run: LinkRun, files: Files, stage: int) -> dict[int, Exchange]:
    """Return the exchanges of a stage that are not measured yet, and whose members are all ready."""
    done = measured(run, reports_of(Store(files), run)[0])
    away = {(each.machine, each.stage, each.attempt) for each in run.lost}
    return {
        number: each
        for number, each in enumerate(run.exchanges)
        if each.stage == stage and number not in done
        if not any((name, stage, each.attempt) in away for name in each.members)
    }


def _stage(
    engine: Engine, options: LinkOptions, files: Files, folder: Path, run: LinkRun, own: dict[int, Exchange]
) -> Generator[Lost, None, None]:
    """Run exchanges, and yield each machine with why it did not come to its end, if it did not."""
    if not own:
        return
    first = min(each.round for each in own.values())
    exchanges = {number: replace(each, round=each.round - first) for number, each in own.items()}
    plan = _plan(engine, options, run.asked, exchanges)
    names = list(plan.nodes)
    stage, attempt = max((each.stage, each.attempt) for each in own.values())
    finished = f"finished-{stage}-{attempt}.json"
    arguments = ("--finished", finished, plan.packed())
    work = MachineRun(arguments, folder, plan.longest_s + _GRACE_S, len(names), COMMAND, finished, links=True)
    with contextlib.closing(engine.run(names, work)) as results:
        for done in results:
            why = _kept(done, files.below(plain_name(done.machine)), folder, run.exchanges, exchanges)
            yield Lost(done.machine, why, stage, attempt)


def _plan(engine: Engine, options: LinkOptions, asked: Sequence[str], exchanges: dict[int, Exchange]) -> LinkPlan:
    members = {name for each in exchanges.values() for name in each.members}
    ports = {name: options.port + number for number, name in enumerate(asked) if name in members}
    addresses = engine.addresses(list(ports))
    nodes = {name: (addresses[name], port) for name, port in ports.items()}
    return LinkPlan(secrets.token_hex(8), nodes, exchanges, options.sizes_bytes, options.start_s, options.limit_s)


def _kept(done: Done, files: Files, folder: Path, everything: tuple[Exchange, ...], own: dict[int, Exchange]) -> str:
    """Keep the reports of a machine, and say why it did not come to its end.

    An engine carries them as text, or they are in the folder that the machines write to.
    """
    place = LocalFiles(folder / plain_name(done.machine))
    wanted = {number for number, each in own.items() if done.machine in each.members}
    if done.text is not None:
        texts: list[str | ValueError] = [line for line in done.text.splitlines() if line.startswith("{")]
    elif files == place:
        return done.why
    else:
        texts = list(place.texts(place.names(f"*{SUFFIX}")))
    reported, bad = set[int](), ""
    for text in texts:
        try:
            if isinstance(text, ValueError):
                raise text
            report = parse_report(text, done.machine, everything)
        except ValueError as error:
            bad = f"sent a report that is none: {error}"
            continue
        if report.attempt == everything[report.number].attempt:
            keep(report, files)
            reported.add(report.number)
    return done.why or bad or ("" if wanted <= reported else "ended before its last exchange")
