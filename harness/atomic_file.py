"""Writes files atomically: a reader sees the old file or the whole new one, also after a crash."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` in one step.

    On an OSError the old file, if any, is unchanged, and no other file is left. Writers of the same file, in threads or
    on several hosts, do not meet.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        # Text from the user's system may hold lone surrogates, which UTF-8 cannot encode.
        with beside.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # else a power failure may leave the new name with no content
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
