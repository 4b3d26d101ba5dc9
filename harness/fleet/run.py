"""Runs the checks on many machines by an engine, and keeps what comes of each at once."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from harness.errors import ReportError, UsageError
from harness.fleet import asked
from harness.fleet.asked import RUNS, FleetRun, Outcome
from harness.fleet.engines.engine import Done, Engine, MachineRun
from harness.fleet.files import MOST_BYTES, Files, LocalFiles, StoreError
from harness.fleet.store import Store, parsed, plain_name
from harness.records import RUN_SCHEMA_VERSION, Host, RunRecord
from harness.report.storage import RUN_FILE, json_text, load_run
from harness.stored import parse_versioned


def start(engine: Engine, arguments: Sequence[str], store: Store, now: datetime) -> tuple[Files, FleetRun]:
    """Ask the engine for its machines, and make a new run, with its files. Nothing has been started then."""
    found = engine.machines()
    names = [each.name for each in found]
    for twice in (name for name in dict.fromkeys(names) if names.count(name) > 1):
        raise UsageError(f"{twice} is named twice")
    files = store.files.below(new_folder(store, now, RUNS))
    run = FleetRun(
        now.isoformat(timespec="seconds"),
        engine.name,
        tuple(arguments),
        tuple(names),
        tuple(Outcome(each.name, each.why_not) for each in found if each.why_not),
    )
    asked.save(run, files)
    return files, run


def resume(engine: Engine, store: Store) -> tuple[Files, FleetRun]:
    """Return the newest run of a store, to be continued. The engine is asked for its machines again."""
    prefix, run, _ = asked.newest(store)
    if run is None or run.complete:
        raise UsageError(f"store {store.name}: no run that was interrupted")
    found = {each.name: each.why_not for each in engine.machines()}
    files = store.files.below(prefix.rstrip("/"))
    lost = {name: "unknown to the engine now" for name in run.asked if name not in found}
    lost |= {name: found[name] for name in run.asked if found.get(name)}
    done = recorded(files, run)
    return files, replace(run, outcomes=tuple(Outcome(name, why) for name, why in lost.items() if name not in done))


def carry_out(
    engine: Engine, work: MachineRun, run: FleetRun, files: Files | None = None
) -> Generator[Outcome, None, None]:
    """Run the work on the machines of ``run`` that have no outcome, and yield each when it is done.

    ``files``: those of the run, by default in the folder of ``work``. What is interrupted leaves the results so far,
    and ``fleet.json`` says that it is not complete.
    """
    files = LocalFiles(work.folder) if files is None else files
    done = {each.machine for each in run.outcomes} | recorded(files, run)
    left = [name for name in run.asked if name not in done]
    # A machine may have written its record after nobody waited for it any more.
    late = [name for name in left if engine.needs_folder and (work.folder / plain_name(name) / RUN_FILE).exists()]
    left = [name for name in left if name not in late]
    with kept_in(files.name), contextlib.closing(engine.run(left, work)) as results:
        for result in itertools.chain(map(Done, late), results):
            outcome = _keep(result, work.folder, files)
            if outcome.why:
                # Each result is a file of its own already; this only notes why one is missing.
                run = replace(run, outcomes=(*run.outcomes, outcome))
                asked.save(run, files)
            yield outcome
        asked.save(replace(run, complete=True), files)


@contextlib.contextmanager
def kept_in(place: Path | str) -> Iterator[None]:
    """Raise StoreError where the files of a run cannot be written: what has come so far is kept, and the run ends."""
    try:
        yield
    except (ReportError, StoreError) as error:
        raise StoreError(place, f"{error.why}; the run has ended, and what has come so far is kept") from error


def _keep(done: Done, folder: Path, files: Files) -> Outcome:
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
            record = parse_versioned(parsed(done.text[max(done.text.find("{"), 0) :]), RunRecord, RUN_SCHEMA_VERSION)
    except ValueError as error:
        return Outcome(done.machine, f"sent no record: {error}")
    host = record.host or Host()
    if done.text is not None or host.name != done.machine or files != LocalFiles(folder):
        # The engine knows which machine it was; a machine may say anything.
        named = replace(record, host=replace(host, name=done.machine))
        files.write(f"{own}/{RUN_FILE}", json_text(named) + "\n")
    return Outcome(done.machine)


def recorded(files: Files, run: FleetRun) -> set[str]:
    """Return the machines of a run that have a record."""
    folders = {path.partition("/")[0] for path in files.names(f"*/{RUN_FILE}")}
    return {name for name in run.asked if plain_name(name) in folders}


def new_folder(store: Store, now: datetime, kind: str) -> str:
    """Make a folder for a run of a kind, named after the time, and return its path in the store."""
    return store.files.claim(f"{kind}/{now:%Y%m%dT%H%M%SZ}")
