"""The files of several runs, which outlive ^C."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from harness.cli.endings import Ended
from harness.cli.errors import say
from harness.plural import plural
from harness.temporary import temporary_folder


@contextlib.contextmanager
def folder_of_runs(prefix: str) -> Iterator[Path]:
    """A temporary folder for the JSON files of several runs. If a signal ends them, those that finished stay."""
    with temporary_folder(prefix, results="*.json") as folder:
        try:
            yield folder
        except Ended:
            if finished := len(list(folder.glob("*.json"))):
                say(f"{plural(finished, 'finished run')} kept in {folder}; `harness compare` compares two of its files")
            raise
