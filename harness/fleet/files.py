"""The files of a store, as the store sees them: those of a local folder here, those at a URL in ``remote_files.py``.

Paths are relative to the store, with slashes. What is in a file comes from other machines: its size is limited before
it is read, and nothing is a path or a command because a file says so.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.atomic_file import write_atomically
from harness.errors import UsageError
from harness.plural import plural
from harness.report.storage import RUN_FILE

#: No record of a machine is larger; a file that is may be anything.
MOST_BYTES = 32 * 2**20
#: The names of records: of the folder of a run, or of one that was added by itself.
RECORD_SUFFIX = ".run.json"
#: What jobs print is no record, and there may be much of it.
LOGS = "logs"
INDEX_FILE = "index.sqlite"


class StoreError(UsageError, OSError):
    """The store cannot be used."""

    def __init__(self, folder: Path | str, why: str) -> None:
        self.folder, self.why = str(folder), why
        super().__init__(f"store {self.folder}: {why}")


class Unreadable(ValueError):
    """A file cannot be read now. Later it may be, although it has not changed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file that may be a record: its path in the store, and what tells whether it has changed."""

    path: str
    size: int
    #: When it was changed, or another number that differs then.
    stamp: int


class Files(Protocol):
    """The files of a store."""

    @property
    def name(self) -> str:
        """What people call the store: its folder, or its URL without a password."""

    @property
    def index(self) -> Path:
        """Where the index of the store is kept, on this machine."""

    @property
    def folder(self) -> Path:
        """The folder that machines write to. Raise StoreError if the store is none."""

    def below(self, path: str) -> Files:
        """Return the files in a folder of the store."""

    def claim(self, path: str) -> str:
        """Return ``path``, or one like it, at which nothing is yet: a new folder for one writer."""

    def records(self) -> list[Entry]:
        """Return the files that may be records, in the order of their paths. Raise StoreError if there is no store."""

    def names(self, pattern: str) -> list[str]:
        """Return the paths that match a pattern such as ``runs/*/fleet.json``, in their order."""

    def texts(self, paths: Sequence[str]) -> Iterator[str | ValueError]:
        """Yield the text of each file, or why it has none that can be used."""

    def write(self, path: str, text: str) -> str:
        """Write a file, and return its name for people. Raise StoreError if that is impossible."""


def may_be_record(path: str) -> bool:
    """Whether a file is one of the records by its path."""
    *folders, name = path.split("/")
    return (name == RUN_FILE or name.endswith(RECORD_SUFFIX)) and LOGS not in folders


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The files of a folder of this machine, or of one that machines share. Links are not followed."""

    folder: Path

    @property
    def name(self) -> str:
        """The folder."""
        return str(self.folder)

    @property
    def index(self) -> Path:
        """Beside the records."""
        return self.folder / INDEX_FILE

    def below(self, path: str) -> LocalFiles:
        """Return the files in a folder of the store."""
        return LocalFiles(self.folder / path)

    def claim(self, path: str) -> str:
        """Make a new folder, with a number where there is one already."""
        for number in range(1000):
            name = f"{path}-{number}" if number else path
            try:
                (self.folder / name).mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise StoreError(self.folder, error.strerror or str(error)) from error
            return name
        raise StoreError(self.folder, "a thousand runs in a second")

    def records(self) -> list[Entry]:
        """Return the files that may be records."""
        if not self.folder.is_dir():
            what = "not a folder" if self.folder.exists() else "no such folder; harness fleet run --store makes it"
            raise StoreError(self.folder, what)
        return sorted(_walk(str(self.folder), ""), key=lambda entry: entry.path)

    def names(self, pattern: str) -> list[str]:
        """Return the paths that match a pattern."""
        found = [path.relative_to(self.folder) for path in self.folder.glob(pattern)]
        folders = {above for path in found for above in path.parents if above.name}
        linked = {each for each in folders if (self.folder / each).is_symlink()}
        return sorted(path.as_posix() for path in found if linked.isdisjoint(path.parents))

    def texts(self, paths: Sequence[str]) -> Iterator[str | ValueError]:
        """Yield the text of each file."""
        for path in paths:
            try:
                yield read_bounded(self.folder / path)
            except ValueError as error:
                yield error

    def write(self, path: str, text: str) -> str:
        """Write a file whole or not at all."""
        file = self.folder / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, text)
        except OSError as error:
            raise StoreError(self.folder, error.strerror or str(error)) from error
        return str(file)


def read_bounded(path: Path) -> str:
    """Read a file of the size of a record. Raise ValueError, with the reason, for what is no such file."""
    try:
        # A pipe must not be waited for, a link not be followed out of the store.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(number, "rb") as file:
            found = os.fstat(number)
            if not stat.S_ISREG(found.st_mode):
                raise ValueError("is not a regular file")
            check_size(found.st_size)
            return decoded(file.read(MOST_BYTES))
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error


def check_size(size_bytes: int) -> None:
    """Raise ValueError if a file is larger than a record can be."""
    if size_bytes > MOST_BYTES:
        raise ValueError(f"has {plural(size_bytes, 'byte')}, more than a record can have")


def decoded(content: bytes) -> str:
    """Return a file's text. Raise ValueError if it is none."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8 text") from error


def _walk(folder: str, prefix: str) -> Iterator[Entry]:
    with contextlib.ExitStack() as stack:
        try:
            found: Iterable[os.DirEntry[str]] = stack.enter_context(os.scandir(folder))
        except OSError:
            return  # removed meanwhile, or not ours to read: its records cannot be named either
        for each in found:
            name = f"{prefix}{each.name}"
            if each.is_dir(follow_symlinks=False):
                if each.name != LOGS:
                    yield from _walk(each.path, f"{name}/")
            elif may_be_record(each.name):
                with contextlib.suppress(FileNotFoundError):
                    status = each.stat(follow_symlinks=False)
                    yield Entry(name, status.st_size, status.st_mtime_ns)
