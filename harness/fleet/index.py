"""The index of a store: an SQLite file with the light form of each record, made from the records.

It is written whole and in one step, so that no two writers meet in it, and a killed one leaves the old one: beside the
records, or in the user's cache for a store at a URL. It is only ever a saving of time: a damaged index is made again,
and a store that cannot be written is read without one.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.fleet.files import Entry
from harness.fleet.seen import Seen
from harness.fleet.store import LeftOut, NotRead, Store
from harness.records import RUN_SCHEMA_VERSION, RunRecord
from harness.runner.messages import plain
from harness.stored import validated

#: Changes with what is kept of a record, so that an index of another harness is made again.
_VERSION = f"2.{RUN_SCHEMA_VERSION}"
_TABLES = """
create table about (version text not null);
create table run (
    path text primary key, size integer not null, stamp integer not null, host text, started_at text,
    cohort text, verdict text, why text, record text);
create table card (path text not null, label text not null, serial text, uuid text, slot text, pci text);
create index card_serial on card (serial);
create index run_host on run (host, started_at);
"""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is in a store: the runs in the order of their paths, what was left out, and whether the index was kept."""

    runs: tuple[Seen, ...]
    left_out: tuple[LeftOut, ...]
    #: Why the index could not be written.
    unwritten: str | None = None


def load(store: Store) -> Loaded:
    """Read the records of a store: those that have not changed since the last time from the index."""
    entries = store.entries()
    path = store.files.index
    known = dict(_known(path))
    unknown = [entry for entry in entries if entry not in known]
    read = known | (dict(zip(unknown, store.read(unknown), strict=True)) if unknown else {})
    made = [(entry, read[entry]) for entry in entries]
    # What could not be read is tried again the next time.
    lasting = [(entry, seen) for entry, seen in made if not isinstance(seen, NotRead)]
    unwritten = None
    if list(known) != [entry for entry, _ in lasting]:
        unwritten = _write(path, lasting)
    return Loaded(
        tuple(each for _, each in made if isinstance(each, Seen)),
        tuple(each for _, each in made if isinstance(each, LeftOut)),
        unwritten,
    )


def _known(path: Path) -> Iterator[tuple[Entry, Seen | LeftOut]]:
    """Yield what the index has; nothing where there is none, or it is damaged or of another version."""
    if not path.is_file() or path.is_symlink():
        return
    found: list[tuple[Entry, Seen | LeftOut]] = []
    with contextlib.suppress(sqlite3.Error, ValueError, TypeError):
        with contextlib.closing(sqlite3.connect(f"file:{_quoted(path)}?mode=ro&immutable=1", uri=True)) as connection:
            if connection.execute("select version from about").fetchone() != (_VERSION,):
                return
            rows = connection.execute("select path, size, stamp, why, record from run order by path")
            for name, size, stamp, why, record in rows:
                seen = LeftOut(name, why) if record is None else Seen(name, validated(json.loads(record), RunRecord))
                found.append((Entry(name, size, stamp), seen))
        yield from found


def _quoted(path: Path) -> str:
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _write(path: Path, made: list[tuple[Entry, Seen | LeftOut]]) -> str | None:
    """Write the index whole, and return why it could not be written."""
    # Writers on several hosts may have the same process id.
    beside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(beside)) as connection, connection:
            # The file is put in place when it is whole, so it needs no journal.
            connection.execute("pragma journal_mode = off")
            connection.executescript(_TABLES)
            connection.execute("insert into about values (?)", (_VERSION,))
            connection.executemany("insert into run values (?, ?, ?, ?, ?, ?, ?, ?, ?)", map(_row, made))
            for _, seen in made:
                if isinstance(seen, Seen):
                    connection.executemany(
                        "insert into card values (?, ?, ?, ?, ?, ?)",
                        [(seen.path, c.label, c.serial, c.uuid, c.slot, c.pci) for c in seen.record.cards],
                    )
        beside.replace(path)
    except (sqlite3.Error, OSError, UnicodeEncodeError) as error:  # the name of a file need not be text
        with contextlib.suppress(OSError):
            beside.unlink()
        return str(error)
    return None


def _row(pair: tuple[Entry, Seen | LeftOut]) -> tuple[object, ...]:
    entry, seen = pair
    if isinstance(seen, LeftOut):
        return (entry.path, entry.size, entry.stamp, None, None, None, None, seen.why, None)
    cohort = None if seen.cohort is None else json.dumps(plain(seen.cohort), sort_keys=True)
    text = json.dumps(plain(seen.record), allow_nan=False)
    about = (_encodable(seen.host), _encodable(seen.record.started_at), cohort, str(seen.record.verdict))
    return (entry.path, entry.size, entry.stamp, *about, None, text)


def _encodable(text: str) -> str:
    """SQLite keeps UTF-8, which lone surrogates are not."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
