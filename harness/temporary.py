"""Temporary folders that do not outlive what they are for."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def temporary_folder(prefix: str, results: str | None = None) -> Iterator[Path]:
    """A folder for what processes print. It is removed when the body ends, also by ^C; not if an error may need it.

    If the body is ended early, files whose names match ``results`` are kept, and the folder with them.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    needed = False
    try:
        yield folder
    except Exception:
        needed = any(file.is_file() and file.stat().st_size for file in folder.rglob("*"))
        raise
    except BaseException:
        needed = results is not None and any(folder.glob(results))
        raise
    finally:
        if not needed:
            shutil.rmtree(folder, ignore_errors=True)


def folder_of_this_process(prefix: str) -> Path:
    """A folder that is removed when this process ends; those of processes that were killed are removed now."""
    for old in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        held = _lock(old)
        if held is not None:
            shutil.rmtree(old, ignore_errors=True)
            os.close(held)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    while _lock(folder) is None and not folder.exists():
        folder = Path(tempfile.mkdtemp(prefix=prefix))  # another process took it for an old one
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _lock(folder: Path) -> int | None:
    """Lock a folder until what is returned is closed, at the latest by the process's end; ``None`` if that fails."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # a process that lives has it, or this file system has no locks
        os.close(descriptor)
        return None
    return descriptor
