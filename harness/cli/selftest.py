"""``harness selftest``: plants known faults, and shows how many of them are found."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.endings import Ended
from harness.cli.errors import clear_errors
from harness.cli.options import DEFAULT_REPORT, DevicesOption, ReportOption, check_report, check_spec
from harness.plural import plural
from harness.records import ExitCode

if TYPE_CHECKING:
    from rich.console import Console

    from harness.faults.selftest import SelfTest

#: Name of the record in the report folder.
SELFTEST_FILE = "selftest.json"


def selftest(
    devices: DevicesOption = "cpu:4",
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="A fault, a class such as V01, or a group; may be repeated."),
    ] = None,
    report: ReportOption = DEFAULT_REPORT,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the table and what went wrong.")] = False,
) -> None:
    """Plant each fault of the catalogue and its clean twin, verify both, and print how many faults are found.

    A fault is found if each mode of the program (eager, graph) gives one of the expected kinds of finding. A twin with
    a finding is a false alarm. The cause is right if the first line of the verification names it, and wrong if it names
    another one. The first op is right if that line names the first op in which the fault and its twin differ. The
    record is DIR/selftest.json; after ^C it has what was tried. The exit code is 0 if every fault is found and every
    twin passes and, of the whole catalogue, at least 85% of the causes and 90% of the first ops are right, and at most
    3% of the causes wrong.
    """
    from harness.faults.selftest import select, self_test
    from harness.report.terminal import print_line, stdout_console

    console, record = stdout_console(), None
    with clear_errors():
        check_spec(devices)
        chosen = select(only or ())
        check_report(report)
        try:
            with contextlib.closing(self_test(devices, chosen, report / "logs")) as trying:
                for record in trying:
                    each = record.tried[-1]
                    if not quiet:
                        print_line(console, f"{each.name}: {each.result} ({each.elapsed_s:.1f} s)")
        except Ended:
            if record is not None:
                _finish(console, record, report, len(chosen))
            raise
    if record is None:
        raise typer.Exit(ExitCode.UNKNOWN)
    _finish(console, record, report, len(chosen))
    raise typer.Exit(ExitCode.SUCCESS if record.good else ExitCode.FAILURE)


def _finish(console: Console, record: SelfTest, report: Path, faults: int) -> None:
    """Print what was tried, and keep it."""
    from harness.faults.selftest import COLUMNS
    from harness.report.storage import save_json
    from harness.report.terminal import make_table, print_line

    console.print(make_table(COLUMNS, record.rows(), right=COLUMNS[1:]))
    for each in record.tried:
        if each.skipped or not each.good or each.unexpected or each.cause == "wrong":
            print_line(console, f"{each.name} ({each.title}): {each.result}")
            for said in filter(None, (each.said if each.cause != "right" else "", each.said_of_twin)):
                print_line(console, f"  {said}")
    for missed in record.aims_missed:
        print_line(console, missed)
    if not record.complete:
        print_line(console, f"INTERRUPTED: {len(record.tried):,} of {plural(faults, 'fault')} tried")
    with clear_errors():
        typer.echo(f"Record: {save_json(record, report, SELFTEST_FILE)}")
