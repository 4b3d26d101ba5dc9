"""``harness run``: independent programs at once, each with a device of its own."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.endings import Ended
from harness.cli.errors import clear_errors
from harness.cli.options import DEFAULT_REPORT, ReportOption, check_report, check_seconds, check_spec, number
from harness.records import ExitCode

if TYPE_CHECKING:
    from harness.parallel.task_processes import Tasks


def run_tasks(
    scripts: Annotated[
        list[str],
        typer.Argument(
            metavar="SCRIPT.py …", help="Python programs; quote a program with arguments: 'train.py --rate 0.1'."
        ),
    ],
    devices: Annotated[
        str,
        typer.Option(
            "--devices", metavar="SPEC", help="auto, cpu:N, cores:N, gpu, gpu:N or softgpu:…; one device for each task."
        ),
    ] = "auto",
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", parser=number, metavar="S", help="Time limit of a task, in seconds (default: none)."),
    ] = None,
    report: ReportOption = DEFAULT_REPORT,
) -> None:
    """Run several programs at once, each in a process that sees only one device.

    A GPU is selected by its UUID in CUDA_VISIBLE_DEVICES, a CPU by CPU affinity with one thread. If there are more
    programs than devices, the rest wait in a queue. Output goes to DIR/logs/task-N.log, the record to DIR/tasks.json.
    A program that fails, hangs or uses the GPU memory of another is reported; the others continue. ^C ends all.

    Exits with 0 if all programs exited with 0 and none used another's GPU, and with 1 otherwise.
    """
    from harness.devices.nvidia import memory_by_process
    from harness.parallel.task_processes import TaskResult, Tasks
    from harness.parallel.tasks import Script, slots
    from harness.report.terminal import print_line, stdout_console

    with clear_errors():
        check_spec(devices)
        if timeout is not None:
            check_seconds("--timeout", timeout)
        found = [Script.parse(text) for text in scripts]
        own = slots(devices)
        check_report(report)
    memory = memory_by_process if any(slot.uuid for slot in own) else None
    tasks = Tasks(found, own, report / "logs", limit_s=timeout, gpu_memory=memory)
    console = stdout_console()
    try:
        with clear_errors(), contextlib.closing(tasks.run()) as events:
            for event in events:
                if isinstance(event, TaskResult):
                    outcome = event.message or "exit code 0"
                    line = f"task {event.number}, {event.command}: {outcome} after {event.elapsed_s:.1f} s"
                else:
                    line = f"task {event[0]}, {found[event[0]]}: started on {event[1].name}"
                print_line(console, line)
    except Ended:
        _finish(tasks, devices, report, complete=False)
        raise
    raise typer.Exit(_finish(tasks, devices, report, complete=True))


def _finish(tasks: Tasks, spec: str, report: Path, *, complete: bool) -> ExitCode:
    from harness.parallel.task_processes import TasksRecord
    from harness.report.storage import save_json
    from harness.report.tasks import TASKS_FILE, print_tasks
    from harness.report.terminal import stdout_console

    record = TasksRecord(
        spec=spec,
        devices=tuple(slot.name for slot in tasks.slots),
        commands=tuple(map(str, tasks.scripts)),
        results=tuple(tasks.results),
        complete=complete,
    )
    print_tasks(stdout_console(), record)
    with clear_errors():
        typer.echo(f"Record: {save_json(record, report, TASKS_FILE)}")
    return ExitCode.FAILURE if any(each.message for each in record.results) else ExitCode.SUCCESS
