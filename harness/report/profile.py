"""Prints a profile: a table by device, the overlap, the causes of no gain, and the memory. Reads ``profile.json``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.report.memory import print_memory
from harness.report.storage import load_versioned
from harness.report.terminal import make_table, print_line
from harness.speed.timeline.record import COLUMNS, PROFILE_SCHEMA_VERSION, Profile

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

#: Name of the record in the report folder.
PROFILE_FILE = "profile.json"


def load_profile(path: Path) -> Profile:
    """Read the record at ``path``, which may be the report folder.

    Raise InvalidRecord if there is no such file, or it is not a record of this version or an earlier one.
    """
    return load_versioned(path / PROFILE_FILE if path.is_dir() else path, Profile, PROFILE_SCHEMA_VERSION)


def print_profile(console: Console, profile: Profile) -> None:
    """Print the table, the totals, what is unknown, and the causes."""
    console.print(_table(profile))
    for line in profile.summary():
        print_line(console, line)
    if profile.memory:
        print_memory(console, profile.memory)
    if profile.memory_unknown:
        print_line(console, profile.memory_unknown)


def _table(profile: Profile) -> Table:
    rows = [times.cells() for times in profile.times]
    if profile.unattributed_ops:
        unknown_ms = f"{profile.unattributed_ns / 1e6:.2f}"
        rows.append(["UNKNOWN", unknown_ms, *[""] * 6, str(profile.unattributed_ops), "", ""])
    return make_table(COLUMNS, rows, right=COLUMNS[1:], title="ms, sum of all calls")
