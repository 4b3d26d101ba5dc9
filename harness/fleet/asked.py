"""What a run over many machines was meant to do: ``fleet.json``, from which the denominator of a report comes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.fleet.files import Files, read_bounded
from harness.fleet.seen import parse_time
from harness.fleet.store import LeftOut, Store, parsed
from harness.report.storage import json_text
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


def save(run: FleetRun, files: Files) -> None:
    """Write ``fleet.json`` of a run, whose files these are."""
    files.write(FLEET_FILE, json_text(run) + "\n")


def newest(store: Store) -> tuple[str, FleetRun | None, list[LeftOut]]:
    """Return the newest run in a store with its path, and the files that are none."""
    found: list[tuple[str, str, FleetRun]] = []
    bad: list[LeftOut] = []
    paths = store.files.names(f"{RUNS}/*/{FLEET_FILE}")
    for path, run in zip(paths, store.made(paths, lambda _, content: _run(content)), strict=True):
        if isinstance(run, LeftOut):
            bad.append(run)
        else:
            found.append((run.started_at, path.removesuffix(FLEET_FILE), run))
    if not found:
        return "", None, bad
    _, prefix, run = max(found, key=lambda each: each[:2])
    return prefix, run, bad


def load(path: Path) -> FleetRun:
    """Read ``fleet.json``. Raise ValueError, with the reason, if it is not one."""
    return _run(parsed(read_bounded(path)))


def _run(content: object) -> FleetRun:
    run = parse_versioned(content, FleetRun, SCHEMA_VERSION)
    if parse_time(run.started_at) is None:
        raise ValueError(f"started_at {run.started_at[:40]!r} is not a time")
    return run
