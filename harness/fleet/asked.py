"""What a run over many machines was meant to do: ``fleet.json``, from which the denominator of a report comes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.fleet.seen import parse_time
from harness.fleet.store import LeftOut, Store, read_bounded
from harness.report.storage import save_json
from harness.stored import parse_versioned

FLEET_FILE = "fleet.json"
#: The folder of the runs in a store, each with a folder for each machine.
RUNS = "runs"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one machine: ``why`` there is no result, or an empty text."""

    machine: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class FleetRun:
    """One run over many machines."""

    started_at: str
    engine: str
    arguments: tuple[str, ...]
    #: Every machine that was named or found, in their order.
    asked: tuple[str, ...]
    #: Machines that were not started, or came to no result, and why. The record of any other is in its folder.
    outcomes: tuple[Outcome, ...] = ()
    complete: bool = False
    schema_version: int = SCHEMA_VERSION


def save(run: FleetRun, folder: Path) -> None:
    """Write ``fleet.json`` of a run."""
    save_json(run, folder, FLEET_FILE)


def newest(store: Store) -> tuple[str, FleetRun | None, list[LeftOut]]:
    """Return the newest run in a store with its path, and the files that are none."""
    found: list[tuple[str, str, FleetRun]] = []
    bad: list[LeftOut] = []
    folder = store.folder / RUNS
    for path in sorted(folder.glob(f"*/{FLEET_FILE}")) if folder.is_dir() else ():
        name = path.relative_to(store.folder).as_posix()
        try:
            run = load(path)
        except ValueError as error:
            bad.append(LeftOut(name, str(error)))
            continue
        found.append((run.started_at, f"{path.parent.relative_to(store.folder).as_posix()}/", run))
    if not found:
        return "", None, bad
    _, prefix, run = max(found, key=lambda each: each[:2])
    return prefix, run, bad


def load(path: Path) -> FleetRun:
    """Read ``fleet.json``. Raise ValueError, with the reason, if it is not one."""
    import json

    run = parse_versioned(json.loads(read_bounded(path)), FleetRun, SCHEMA_VERSION)
    if parse_time(run.started_at) is None:
        raise ValueError(f"started_at {run.started_at[:40]!r} is not a time")
    return run
