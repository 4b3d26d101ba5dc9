"""Prints tasks and stores them as ``tasks.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.parallel.task_processes import TasksRecord
from harness.plural import plural
from harness.report.terminal import make_table, print_line

if TYPE_CHECKING:
    from rich.console import Console

#: Name of the record in the report folder.
TASKS_FILE = "tasks.json"


def print_tasks(console: Console, record: TasksRecord) -> None:
    """Print a row for each task, and a summary."""
    head = ("task", "verdict", "exit", "time", "device", "what is wrong")
    rows = []
    for each in sorted(record.results, key=lambda result: result.number):
        code = "" if each.exit_code is None else str(each.exit_code)
        rows.append((each.command, str(each.verdict), code, f"{each.elapsed_s:.1f} s", each.device, each.message))
    console.print(make_table(head, rows, right=("exit", "time"), long=(head[0], head[-1])))
    print_line(console, summary(record))


def summary(record: TasksRecord) -> str:
    """Summarise the tasks in one line."""
    failed = sum(bool(each.message) for each in record.results)
    done = len(record.results)
    tasks = plural(len(record.commands), "task")
    ran = tasks if done == len(record.commands) else f"{done:,} of {tasks}"
    text = f"{ran} ran on {plural(len(record.devices), 'device')} of {record.spec}"
    text += f": {done - failed} succeeded, {failed} failed" if failed else "; all succeeded"
    return text if record.complete else f"{text}; INTERRUPTED"
