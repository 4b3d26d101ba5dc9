"""Prints tasks and stores them as ``tasks.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.parallel.task_processes import TasksRecord
from harness.plural import plural

if TYPE_CHECKING:
    from rich.console import Console

#: Name of the record in the report folder.
TASKS_FILE = "tasks.json"


def print_tasks(console: Console, record: TasksRecord) -> None:
    """Print a row for each task, and a summary."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("task", "verdict", "exit", "time", "device", "what is wrong"):
        table.add_column(name, overflow="fold", justify="right" if name in ("exit", "time") else "left")
    for each in sorted(record.results, key=lambda result: result.number):
        code = "" if each.exit_code is None else str(each.exit_code)
        cells = (each.command, str(each.verdict), code, f"{each.elapsed_s:.1f} s", each.device, each.message)
        table.add_row(*map(Text, cells))
    console.print(table)
    console.print(summary(record), markup=False, soft_wrap=True)


def summary(record: TasksRecord) -> str:
    """Summarise the tasks in one line."""
    failed = sum(bool(each.message) for each in record.results)
    done = len(record.results)
    text = (
        f"{done} of {plural(len(record.commands), 'task')} ran on "
        f"{plural(len(record.devices), 'device')} of {record.spec}"
    )
    text += f": {done - failed} succeeded, {failed} failed" if failed else "; all succeeded"
    return text if record.complete else f"{text}; INTERRUPTED"
