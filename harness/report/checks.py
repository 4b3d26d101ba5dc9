"""Prints the list of checks: for ``harness list``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.checking.check import Check
from harness.plural import plural
from harness.report.terminal import make_table

if TYPE_CHECKING:
    from rich.console import Console


def print_checks(console: Console, checks: tuple[Check, ...]) -> None:
    """Print a table: each check's id, purpose, level, needs, and typical time on two cores."""
    rows = []
    for check in checks:
        devices = plural(check.minimum_devices, "device") if check.minimum_devices else "nothing"
        devices += " of one process" if check.one_process else ""
        rows.append((check.id, check.proves, str(check.level), devices, f"{check.typical_s:g} s"))
    head = ("check", "proves", "level", "needs", "takes")
    console.print(make_table(head, rows, right=("takes",), long=("proves",)))
