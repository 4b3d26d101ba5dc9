"""Stands in for ``python -m harness`` on a node: it answers with a record, hangs, or runs out of disk.

It does what ``NODE.does`` beside this file says, by default ``answers``, and answers with ``NODE.json``.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import psutil

#: What a full disk, or a limit on the size of files, makes of a write.
FULL = ("No space left on device", "File too large")
_FULL_BYTES = 4096


def wait_for(file: Path, limit_s: float) -> int:
    """Wait until a process has written its id."""
    deadline = time.monotonic() + limit_s
    while not file.exists() or not file.read_text(encoding="utf-8"):
        assert time.monotonic() < deadline, f"no {file.name}"
        time.sleep(0.05)
    return int(file.read_text(encoding="utf-8"))


def has_ended(pid: int, limit_s: float) -> bool:
    """Wait until a process has ended, be it that nobody has asked for its exit code yet."""
    deadline = time.monotonic() + limit_s
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        while process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
    return True


def _answer(here: Path, node: str, folder: Path) -> None:
    text = (here / f"{node}.json").read_text(encoding="utf-8")
    (folder / "run.json").write_text(text, encoding="utf-8")
    if "--json" in sys.argv:
        print(text)


def _answer_on_a_full_disk(here: Path, node: str, folder: Path) -> None:
    """Write to a file system that is too small; where none can be mounted, with a limit on the size of files."""
    options = f"size={_FULL_BYTES}"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        resource.setrlimit(resource.RLIMIT_FSIZE, (_FULL_BYTES, _FULL_BYTES))
    try:
        _answer(here, node, folder)
    except OSError as error:
        sys.exit(f"harness: error: report folder {folder} cannot be written: {error.strerror}")
    finally:
        if not mounted.returncode:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def main() -> None:
    """Misbehave."""
    here, node = Path(__file__).parent, os.environ["HARNESS_NODE"]
    folder = Path(sys.argv[sys.argv.index("--report") + 1])
    does = here / f"{node}.does"
    way = does.read_text(encoding="utf-8") if does.exists() else "answers"
    if way == "hangs":
        (here / f"{node}.pid").write_text(str(os.getpid()), encoding="utf-8")
        time.sleep(3600)
    {"answers": _answer, "full": _answer_on_a_full_disk}[way](here, node, folder)


if __name__ == "__main__":
    main()
