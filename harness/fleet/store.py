"""The store: records, one file for each run, in a folder or at a URL. Whatever else is in it is named and left out.

Every writer has files of its own, so that concurrent writers lose nothing. Nothing but the records matters: the index
is made from them, and made again where it is damaged.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from harness.fleet.files import MOST_BYTES, RECORD_SUFFIX, Entry, Files, LocalFiles, StoreError, Unreadable
from harness.fleet.seen import Seen, light, parse_time
from harness.plural import plural
from harness.records import RUN_SCHEMA_VERSION, RunRecord
from harness.report.storage import json_text
from harness.stored import parse_versioned

Made = TypeVar("Made")
#: The folder of records that were added one by one.
_ADDED = "records"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::[A-Za-z][A-Za-z0-9+.-]*)*://")
_LOCAL_URL = re.compile(r"(?:file|local)://(?:localhost(?=/))?", re.IGNORECASE)
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that is no record of use, and why."""

    path: str
    why: str


class NotRead(LeftOut):
    """A file that could not be read this time."""

    __slots__ = ()


class Store:
    """Records in a folder, or at a URL that fsspec knows."""

    def __init__(self, place: Path | str | Files) -> None:
        self.files = _files_at(place) if isinstance(place, Path | str) else place

    @property
    def name(self) -> str:
        """What people call it."""
        return self.files.name

    @property
    def folder(self) -> Path:
        """The folder that machines and engines write to. Raise StoreError if the store is not a folder."""
        return self.files.folder

    def entries(self) -> list[Entry]:
        """Return the files that may be records, in the order of their paths. Raise StoreError if there is no store."""
        return self.files.records()

    def read(self, entries: Sequence[Entry]) -> Iterator[Seen | LeftOut]:
        """Read records, without what only their own reports show."""
        return self.made([entry.path for entry in entries], _seen)

    def made(self, paths: Sequence[str], make: Callable[[str, Any], Made]) -> Iterator[Made | LeftOut]:
        """Yield what ``make`` makes of the path and the content of each JSON file, or why it is left out.

        ``make`` raises ValueError, with the reason, for a content that is of no use.
        """
        for path, text in zip(paths, self.files.texts(paths), strict=True):
            try:
                if isinstance(text, ValueError):
                    raise text
                result = make(path, parsed(text))
            except ValueError as error:
                yield (NotRead if isinstance(error, Unreadable) else LeftOut)(path, str(error))
            else:
                yield result

    def add(self, text: str) -> str:
        """Add a record, as text, and return its name. The same record is kept once.

        Raise ValueError if it is no record, or larger than one, and StoreError if the store cannot be written.
        """
        if len(text) > MOST_BYTES:
            raise ValueError(f"has more than {plural(MOST_BYTES, 'byte')}: not a record")
        record = parse_versioned(parsed(text), RunRecord, RUN_SCHEMA_VERSION)
        whole = json_text(record) + "\n"
        digest = hashlib.sha256(whole.encode("utf-8", "backslashreplace")).hexdigest()[:16]
        host = plain_name((record.host.name if record.host is not None else None) or "machine")
        return self.files.write(f"{_ADDED}/{_started(record)}-{host}-{digest}{RECORD_SUFFIX}", whole)


def _files_at(place: Path | str) -> Files:
    """Return the files of a folder, or of a URL that fsspec knows. ``file://`` is a folder of this machine.

    Raise MissingExtra without fsspec, and StoreError if nothing can be reached at the URL.
    """
    if isinstance(place, Path) or not _URL.match(place):
        return LocalFiles(Path(place))
    local = _LOCAL_URL.match(place)
    if local is None:
        from harness.fleet.remote_files import RemoteFiles

        return RemoteFiles(place)
    folder = Path(place[local.end() :])
    if not folder.is_absolute():
        raise StoreError(place, "accepted: file:///FOLDER, with the whole path")
    return LocalFiles(folder)


def plain_name(text: str) -> str:
    """Make a file name of the name of a machine: it comes from there, and may be a path."""
    return _NOT_PLAIN.sub("-", text).strip(".-")[:80] or "machine"


def parsed(text: str) -> Any:
    """Parse JSON. Raise ValueError, with the reason, if it is none."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error


def _seen(path: str, content: Any) -> Seen:
    record = parse_versioned(content, RunRecord, RUN_SCHEMA_VERSION)
    _started(record)
    return Seen(path, light(record))


def _started(record: RunRecord) -> str:
    """Return when a run started, for a file name. Raise ValueError if its text is no time."""
    started = parse_time(record.started_at)
    if started is None:
        raise ValueError(f"started_at {record.started_at[:40]!r} is not a time")
    return f"{started:%Y%m%dT%H%M%S}"
