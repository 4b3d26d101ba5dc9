"""Prints the list of checks: for ``harness list``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.checking.check import Check
from harness.plural import plural

if TYPE_CHECKING:
    from rich.console import Console


def print_checks(console: Console, checks: tuple[Check, ...]) -> None:
    """Print a table: each check's id, purpose, level, needs, and typical time on two cores."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("proves")
    table.add_column("level", no_wrap=True)
    table.add_column("needs", no_wrap=True)
    table.add_column("takes", justify="right", no_wrap=True)
    for check in checks:
        devices = f"{plural(check.minimum_devices, 'device')}"
        devices += " of one process" if check.one_process else ""
        table.add_row(
            Text(check.id), Text(check.proves), Text(str(check.level)), Text(devices), Text(f"{check.typical_s:g} s")
        )
    console.print(table)
