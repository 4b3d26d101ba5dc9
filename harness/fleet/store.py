"""The store: a folder of records, one file for each run. Whatever else is in it is named and left out.

Every writer has files of its own, so that concurrent writers lose nothing. Nothing but the records matters: the index
beside them is made from them, and made again where it is damaged.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.atomic_file import write_atomically
from harness.errors import UsageError
from harness.fleet.seen import Seen, light, parse_time
from harness.plural import plural
from harness.records import RUN_SCHEMA_VERSION, RunRecord
from harness.report.storage import RUN_FILE, json_text
from harness.stored import parse_versioned

#: No record of a machine is larger; a file that is may be anything.
MOST_BYTES = 32 * 2**20
#: The names of records: of the folder of a run, or of one that was added by itself.
_SUFFIX = ".run.json"
#: The folder of records that were added one by one.
_ADDED = "records"
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that is no record of use, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A file that may be a record: its path in the store, and what tells whether it has changed."""

    path: str
    size: int
    changed_ns: int


class StoreError(UsageError, OSError):
    """The store cannot be used."""

    def __init__(self, folder: Path | str, why: str) -> None:
        self.folder, self.why = str(folder), why
        super().__init__(f"store {self.folder}: {why}")


class Store:
    """A folder of records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def entries(self) -> list[Entry]:
        """Return the files that may be records, in the order of their paths. Links are not followed."""
        if not self.folder.is_dir():
            raise StoreError(self.folder, "no such folder; harness fleet run --store makes it")
        return sorted(_walk(str(self.folder), ""), key=lambda entry: entry.path)

    def read(self, entry: Entry) -> Seen | LeftOut:
        """Read one record, without what only its own report shows."""
        try:
            text = read_bounded(self.folder / entry.path)
            record = parse_versioned(_parsed(text), RunRecord, RUN_SCHEMA_VERSION)
        except ValueError as error:
            return LeftOut(entry.path, str(error))
        if parse_time(record.started_at) is None:
            return LeftOut(entry.path, f"started_at {record.started_at[:40]!r} is not a time")
        return Seen(entry.path, light(record))

    def add(self, text: str) -> Path:
        """Add a record, as text, and return its path. The same record is kept once.

        Raise ValueError if it is no record, or larger than one, and StoreError if the folder cannot be written.
        """
        if len(text) > MOST_BYTES:
            raise ValueError(f"has more than {plural(MOST_BYTES, 'byte')}: not a record")
        record = parse_versioned(_parsed(text), RunRecord, RUN_SCHEMA_VERSION)
        started = parse_time(record.started_at)
        if started is None:
            raise ValueError(f"started_at {record.started_at[:40]!r} is not a time")
        whole = json_text(record) + "\n"
        digest = hashlib.sha256(whole.encode("utf-8", "backslashreplace")).hexdigest()[:16]
        host = plain_name((record.host.name if record.host is not None else None) or "machine")
        path = self.folder / _ADDED / f"{started:%Y%m%dT%H%M%S}-{host}-{digest}{_SUFFIX}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, whole)
        except OSError as error:
            raise StoreError(self.folder, error.strerror or str(error)) from error
        return path


def plain_name(text: str) -> str:
    """Make a file name of the name of a machine: it comes from there, and may be a path."""
    return _NOT_PLAIN.sub("-", text).strip(".-")[:80] or "machine"


def read_bounded(path: Path) -> str:
    """Read a file of the size of a record. Raise ValueError, with the reason, for what is no such file."""
    try:
        # A pipe must not be waited for, a link not be followed out of the store.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(number, "rb") as file:
            found = os.fstat(number)
            if not stat.S_ISREG(found.st_mode):
                raise ValueError("is not a regular file")
            if found.st_size > MOST_BYTES:
                raise ValueError(f"has {plural(found.st_size, 'byte')}, more than a record can have")
            return file.read(MOST_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8 text") from error
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error


def _walk(folder: str, prefix: str) -> Iterator[Entry]:
    with contextlib.ExitStack() as stack:
        try:
            found: Iterable[os.DirEntry[str]] = stack.enter_context(os.scandir(folder))
        except OSError:
            return  # removed meanwhile, or not ours to read: its records cannot be named either
        for each in found:
            name = f"{prefix}{each.name}"
            if each.is_dir(follow_symlinks=False):
                if each.name != "logs":
                    yield from _walk(each.path, f"{name}/")
            elif each.name == RUN_FILE or each.name.endswith(_SUFFIX):
                with contextlib.suppress(FileNotFoundError):
                    status = each.stat(follow_symlinks=False)
                    yield Entry(name, status.st_size, status.st_mtime_ns)
