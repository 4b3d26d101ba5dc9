"""The files of a store at a URL, by fsspec: an object store, a server, or what else it has a driver for.

Drivers raise errors of their own classes. Whatever they raise becomes one line that names the store.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness.extras import require
from harness.fleet.files import (
    INDEX_FILE,
    MOST_BYTES,
    Entry,
    StoreError,
    Unreadable,
    check_size,
    decoded,
    may_be_record,
)
from harness.report.printable import shortened
from harness.softgpu.library import cache_folder

#: What tells that a file has changed, by the names that drivers give it.
_STAMPS = (
    "ETag", "etag", "generation", "md5", "checksum", "LastModified", "last_modified", "mtime", "modified", "created",
)  # fmt: skip
#: Files that are read at once: so many, and so many bytes together.
_AT_ONCE, _BYTES_AT_ONCE = 64, 64 * 2**20
_PASSWORD = re.compile(r"(?<=//)[^/@]*@")


class RemoteFiles:
    """The files at a URL. They are listed once, and again for each list of records."""

    def __init__(self, url: str, above: RemoteFiles | None = None) -> None:
        require("fsspec")
        from fsspec.core import url_to_fs

        self._url, self.name = url, _PASSWORD.sub("", url)
        self._listing: dict[str, Mapping[str, Any]] | None = None
        with self._clear_errors():
            self._files, root = url_to_fs(url)
            self._root = str(root).rstrip("/")
        #: The root of the whole store, of which these may be the files of one folder, and how often it was written.
        self._store: str = above._store if above is not None else self._root
        self._written: list[int] = above._written if above is not None else [0]
        self._listed_at = 0

    @property
    def index(self) -> Path:
        """In the user's cache."""
        digest = hashlib.sha256(self.name.encode()).hexdigest()[:16]
        return cache_folder().with_name("fleet") / digest / INDEX_FILE

    @property
    def folder(self) -> Path:
        """No folder: raise StoreError."""
        why = "the machines write to a folder; name one that they share with --shared"
        raise StoreError(self.name, why)

    def below(self, path: str) -> RemoteFiles:
        """Return the files in a folder of the store."""
        return RemoteFiles(f"{self._url.rstrip('/')}/{path}", self)

    def claim(self, path: str) -> str:
        """Return a path that nobody else has. There are no folders, and no way to make one that others see."""
        return f"{path}-{secrets.token_hex(4)}"

    def records(self) -> list[Entry]:
        """Return the files that may be records."""
        self._listing = None
        found = self._listed()
        return [
            Entry(path, int(found[path].get("size") or 0), _stamp(found[path])) for path in found if may_be_record(path)
        ]

    def names(self, pattern: str) -> list[str]:
        """Return the paths that match a pattern."""
        wanted = pattern.split("/")
        return [path for path in self._listed() if _matches(path.split("/"), wanted)]

    def texts(self, paths: Sequence[str]) -> Iterator[str | ValueError]:
        """Yield the text of each file. Many are read at once, if the driver can do so."""
        batch: list[tuple[str, int]] = []
        for path in paths:
            size = self._listed().get(path, {}).get("size")
            bound = MOST_BYTES if size is None else min(int(size), MOST_BYTES)
            if len(batch) == _AT_ONCE or sum(most for _, most in batch) + bound > _BYTES_AT_ONCE:
                yield from self._read(batch)
                batch = []
            batch.append((path, bound))
        yield from self._read(batch)

    def write(self, path: str, text: str) -> str:
        """Write a file: an object whole or not at all."""
        self._written[0] += 1
        content = text.encode("utf-8", "backslashreplace")
        with self._clear_errors():
            try:
                self._files.pipe_file(self._whole(path), content)
            except FileNotFoundError:
                # A folder inside the store is made; the store itself is not, as it may be a bucket that costs money.
                if not self._files.isdir(self._store):
                    raise
                self._files.makedirs(self._whole(path).rpartition("/")[0], exist_ok=True)
                self._files.pipe_file(self._whole(path), content)
        return f"{self.name.rstrip('/')}/{path}"

    def _listed(self) -> Mapping[str, Mapping[str, Any]]:
        if self._listing is None or self._listed_at != self._written[0]:
            self._listed_at = self._written[0]
            with self._clear_errors():
                self._files.invalidate_cache()
                found = self._files.find(self._root, detail=True)
                self._listing = {
                    path: found[name] for name in sorted(found) if (path := name.removeprefix(self._root).lstrip("/"))
                }
        return self._listing

    def _read(self, batch: Sequence[tuple[str, int]]) -> Iterator[str | ValueError]:
        # Some servers refuse a range of an empty file.
        wanted = [path for path, most in batch if most]
        got: dict[str, Any] = {}
        if wanted:
            with self._clear_errors():
                # One byte more than allowed: what has grown since it was listed is noticed.
                ends = [most + 1 for _, most in batch if most]
                whole = [self._whole(path) for path in wanted]
                contents = self._files.cat_ranges(whole, [0] * len(whole), ends, on_error="return")
                got = dict(zip(wanted, contents, strict=True))
        for path, most in batch:
            yield self._text(path, got.get(path, b""), most)

    def _text(self, path: str, content: Any, most: int) -> str | ValueError:
        about = self._listed().get(path, {})
        if about.get("type", "file") != "file":
            return ValueError("is not a regular file")
        if isinstance(content, FileNotFoundError | PermissionError):
            return Unreadable(shortened(str(content), 200) or type(content).__name__)
        if isinstance(content, Exception):
            raise self._error(content) from content
        try:
            check_size(max(int(about.get("size") or 0), len(content)))
            return decoded(content) if len(content) <= most else Unreadable("was changed while it was read")
        except ValueError as error:
            return error

    def _whole(self, path: str) -> str:
        return f"{self._root}/{path}"

    @contextlib.contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> StoreError:
        # A driver that is not installed is an ImportError, whose text names its package.
        return StoreError(self.name, shortened(str(error), 300) or type(error).__name__)


def _stamp(about: Mapping[str, Any]) -> int:
    """Return a number that differs when a file has changed; of a driver that tells nothing, one that always differs."""
    known = [f"{key}={about[key]}" for key in _STAMPS if about.get(key) is not None]
    text = " ".join(known) or str(time.time_ns())
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "backslashreplace")).digest()[:7], "big")


def _matches(path: Sequence[str], pattern: Sequence[str]) -> bool:
    return len(path) == len(pattern) and all(map(fnmatchcase, path, pattern))
