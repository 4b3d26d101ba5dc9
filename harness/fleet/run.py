"""Runs the checks on many machines by an engine, and keeps what comes of each at once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from harness.errors import UsageError
from harness.fleet import asked
from harness.fleet.asked import RUNS, FleetRun, Outcome
from harness.fleet.engines.engine import Done, Engine, MachineRun
from harness.fleet.store import MOST_BYTES, Store, StoreError, plain_name
from harness.records import RUN_SCHEMA_VERSION, Host, RunRecord
from harness.report.storage import RUN_FILE, load_run, save_run
from harness.stored import parse_versioned


def start(engine: Engine, arguments: Sequence[str], store: Store, now: datetime) -> tuple[Path, FleetRun]:
    """Ask the engine for its machines, and make the folder of a new run. Nothing has been started then."""
    found = engine.machines()
    names = [each.name for each in found]
    for twice in (name for name in dict.fromkeys(names) if names.count(name) > 1):
        raise UsageError(f"{twice} is named twice")
    folder = new_folder(store, now, RUNS)
    run = FleetRun(
        now.isoformat(timespec="seconds"),
        engine.name,
        tuple(arguments),
        tuple(names),
        tuple(Outcome(each.name, each.why_not) for each in found if each.why_not),
    )
    asked.save(run, folder)
    return folder, run


def resume(engine: Engine, store: Store) -> tuple[Path, FleetRun]:
    """Return the newest run of a store, to be continued. The engine is asked for its machines again."""
    prefix, run, _ = asked.newest(store)
    if run is None or run.complete:
        raise UsageError(f"store {store.folder}: no run that was interrupted")
    found = {each.name: each.why_not for each in engine.machines()}
    folder = store.folder / prefix
    lost = {name: "unknown to the engine now" for name in run.asked if name not in found}
    lost |= {name: found[name] for name in run.asked if found.get(name)}
    outcomes = tuple(Outcome(name, why) for name, why in lost.items() if not _has_record(folder, name))
    return folder, replace(run, outcomes=outcomes)


def carry_out(engine: Engine, work: MachineRun, run: FleetRun) -> Generator[Outcome, None, None]:
    """Run the work on the machines of ``run`` that have no outcome, and yield each when it is done.

    What is interrupted leaves the results so far, and ``fleet.json`` says that it is not complete.
    """
    known = {each.machine for each in run.outcomes}
    left = [name for name in run.asked if name not in known and not _has_record(work.folder, name)]
    with contextlib.closing(engine.run(left, work)) as results:
        for done in results:
            outcome = _keep(done, work.folder)
            if outcome.why:
                # Each result is a file of its own already; this only notes why one is missing.
                run = replace(run, outcomes=(*run.outcomes, outcome))
                asked.save(run, work.folder)
            yield outcome
    asked.save(replace(run, complete=True), work.folder)


def _keep(done: Done, folder: Path) -> Outcome:
    own = plain_name(done.machine)
    if done.why:
        return Outcome(done.machine, done.why)
    try:
        if done.text is None:
            record = load_run(folder / own)
        else:
            if len(done.text) > MOST_BYTES:
                return Outcome(done.machine, "sent more than a record can have")
            # A program on the machine may print a line of its own first.
            text = done.text[max(done.text.find("{"), 0) :]
            record = parse_versioned(json.loads(text), RunRecord, RUN_SCHEMA_VERSION)
    except (ValueError, RecursionError) as error:
        return Outcome(done.machine, f"sent no record: {error}")
    host = record.host or Host()
    if done.text is not None or host.name != done.machine:
        # The engine knows which machine it was; a machine may say anything.
        save_run(replace(record, host=replace(host, name=done.machine)), folder / own)
    return Outcome(done.machine)


def _has_record(folder: Path, machine: str) -> bool:
    return (folder / plain_name(machine) / RUN_FILE).is_file()


def new_folder(store: Store, now: datetime, kind: str) -> Path:
    """Make a folder for a run of a kind, named after the time."""
    stamp = f"{now:%Y%m%dT%H%M%SZ}"
    for number in range(1000):
        folder = store.folder / kind / (f"{stamp}-{number}" if number else stamp)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise StoreError(store.folder, error.strerror or str(error)) from error
        return folder
    raise StoreError(store.folder, "a thousand runs in a second")
