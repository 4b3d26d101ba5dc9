"""``harness report`` renders saved runs again, ``harness diff`` shows what changed. Neither needs TensorFlow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.errors import clear_errors, say
from harness.errors import ReportError, UsageError
from harness.records import ExitCode
from harness.report.storage import RUN_FILE, load_run, save_text

if TYPE_CHECKING:
    from rich.console import Console

    from harness.records import RunRecord
    from harness.report.comparison import Column

#: Name of the page of several runs: that of each of them stays.
COMPARISON_FILE = "comparison.html"
#: Of more runs, a table with a column for each says little.
MANY = 8


def report(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN.json …", help="Saved runs, or the folders that they are in.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="DIR", file_okay=False, help="Where to write; default: beside the first run."),
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print only the JSON Schema of run.json.")] = False,
) -> None:
    """Render a saved run again: report.html, report.md and junit.xml. TensorFlow is not needed.

    Several runs are shown side by side in comparison.html, with outliers marked. The exit code says whether the report
    was written; the verdicts are in the output.
    """
    from harness.report.terminal import stdout_console

    if schema:
        from harness.report.run_schema import run_schema

        typer.echo(run_schema(), nl=False)
        return
    with clear_errors():
        given = runs or []
        if not given:
            raise UsageError("no run given; accepted: one or more RUN.json, or the folders that they are in")
        records = [load_run(path) for path in given]
        beside = given[0] if given[0].is_dir() else given[0].parent
        folder = output or beside
        console = stdout_console()
        try:
            if len(records) == 1:
                _render(console, records[0], folder, beside)
            else:
                _lay_side_by_side(console, _columns(given, records), folder)
        except ReportError as error:
            raise UsageError(f"{folder} cannot be written: {error.why}; name another folder with --output") from error


def _render(console: Console, record: RunRecord, folder: Path, beside: Path) -> None:
    from harness.report.publish import publish
    from harness.report.terminal import print_report

    print_report(console, record, None, publish(record, folder, beside))


def _lay_side_by_side(console: Console, columns: list[Column], folder: Path) -> None:
    from harness.report.comparison import compare, print_comparison
    from harness.report.html.comparison_page import comparison_page
    from harness.report.terminal import print_line

    found = compare(columns)
    page = save_text(comparison_page(found), folder, COMPARISON_FILE)
    print_comparison(console, found)
    print_line(console, f"Report: {page}")
    if len(columns) > MANY:
        say(
            f"{len(columns)} runs side by side; for many machines, harness fleet report names those that need an action"
        )


def diff_runs(
    old: Annotated[Path, typer.Argument(metavar="OLD.json", help="A saved run, or the folder that it is in.")],
    new: Annotated[Path, typer.Argument(metavar="NEW.json", help="A later run, or its folder.")],
) -> None:
    """Show what changed: verdicts, findings that are new or gone, figures that moved by more than 8%, the environment.

    Exit codes: 0: nothing is worse; 1: something is worse; 2: a usage error, a damaged file, or runs that cannot be
    compared.
    """
    from harness.report.diff import diff, print_diff
    from harness.report.terminal import stdout_console

    with clear_errors():
        found = diff(load_run(old), load_run(new))
    print_diff(stdout_console(), found)
    raise typer.Exit(ExitCode.FAILURE if found.worse else ExitCode.SUCCESS)


def _columns(paths: list[Path], records: list[RunRecord]) -> list[Column]:
    """A name for each run: the shortest end of its path that tells it from the others, or its number beside it."""
    from harness.report.comparison import Column

    places = [(path.parent if path.name == RUN_FILE else path).absolute() for path in paths]
    common = os.path.commonpath(places) if len(set(places)) > 1 else str(places[0].parent)
    names = [os.path.relpath(place, common) for place in places]
    return [
        Column(name if names.count(name) == 1 else f"{name} ({number})", record)
        for number, (name, record) in enumerate(zip(names, records, strict=True), start=1)
    ]
