"""``harness fleet report``, ``history``, ``add``: what is in a store, judged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.errors import clear_errors, say
from harness.cli.fleet_options import DEFAULT_STORE, AsOfOption, PolicyOption, StoreOption, moment, opened
from harness.errors import MissingExtra, UsageError
from harness.records import ExitCode

if TYPE_CHECKING:
    from harness.fleet.files import Files
    from harness.fleet.policy import Policy
    from harness.fleet.verdicts import FleetVerdict

#: What is written beside the records.
PAGE_FILE, JSON_FILE, JUNIT_FILE = "fleet.html", "fleet-verdict.json", "fleet-junit.xml"


def fleet_report(
    store: StoreOption = DEFAULT_STORE,
    policy: PolicyOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="DIR", file_okay=False, help="Where to write; default: the store."),
    ] = None,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Number machines and cards instead of naming them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the verdict as JSON.")] = False,
    as_of: AsOfOption = None,
) -> None:
    """Judge the newest record of each machine beside the others.

    Writes fleet.html, fleet-verdict.json and fleet-junit.xml. Exits with 0 if every machine that was asked is proven,
    with 1 if a machine needs an action or many share a fault, and with 3 if a machine has no verdict.
    """
    from harness.fleet.anonymous import anonymous_fleet
    from harness.fleet.files import LocalFiles
    from harness.fleet.fleet import judge_store
    from harness.fleet.index import load
    from harness.fleet.summary import fleet_json, print_fleet
    from harness.report.terminal import print_line, stdout_console

    with clear_errors():
        kept, rules = opened(store, policy)
        loaded = load(kept)
        found = judge_store(kept, rules, moment(as_of), loaded)
        if not found.machines:
            say(f"error: store {kept.name}: no record of any machine; harness fleet add FILE … adds some")
            raise typer.Exit(ExitCode.UNKNOWN)
        found = anonymous_fleet(found, loaded.runs) if anonymous else found
        written = _write(found, rules, LocalFiles(output) if output is not None else kept.files)
    if as_json:
        typer.echo(fleet_json(found))
    else:
        console = stdout_console()
        print_fleet(console, found, judged_how(found, rules))
        for path in written:
            print_line(console, f"Report: {path}")
    raise typer.Exit(found.exit_code)


def judged_how(found: FleetVerdict, policy: Policy) -> str:
    """Say how outliers were judged."""
    from harness.fleet.summary import method

    judging = policy.judging
    return method(found, judging.false_discovery_rate, judging.spread_floor, judging.least_effect)


def _write(found: FleetVerdict, policy: Policy, files: Files) -> list[str]:
    from harness.extras import require
    from harness.fleet.files import StoreError
    from harness.fleet.junit import fleet_junit
    from harness.fleet.summary import fleet_json

    try:
        written = [
            files.write(JSON_FILE, fleet_json(found) + "\n"),
            files.write(JUNIT_FILE, fleet_junit(found)),
        ]
        try:
            require("jinja2")
        except MissingExtra as error:
            say(f"{PAGE_FILE} was not written: {error}")
            return written
        from harness.fleet.page import fleet_page

        return [files.write(PAGE_FILE, fleet_page(found, judged_how(found, policy))), *written]
    except StoreError as error:
        raise UsageError(f"{files.name} cannot be written: {error.why}; name another folder with --output") from error


def history(
    serial: Annotated[str, typer.Option("--serial", metavar="S", help="The serial number of a card, or its UUID.")],
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Show all runs of a card: where it sat, what was wrong, and whether the fault moves with it.

    Exits with 1 if the card failed in any run, and with 3 if the store has no run of it.
    """
    from harness.fleet.history import of_card
    from harness.fleet.index import load
    from harness.records import Verdict
    from harness.report.printable import one_line, shortened
    from harness.report.terminal import print_line, stdout_console

    with clear_errors():
        kept, _ = opened(store, None)
        runs = load(kept).runs
    found = of_card(runs, serial)
    console = stdout_console()
    for stay in found.stays:
        reason = f": {shortened(stay.reason, 200)}" if stay.reason else ""
        print_line(console, f"{one_line(stay.started_at)}  {stay.verdict:<7}  {stay.place}{reason}")
    for where, others in found.shared_places:
        print_line(console, f"other cards that failed at {where}: {others}")
    print_line(console, f"{one_line(serial)}: {found.conclusion}")
    if not found.stays:
        raise typer.Exit(ExitCode.UNKNOWN)
    raise typer.Exit(
        ExitCode.FAILURE if any(stay.verdict is Verdict.FAIL for stay in found.stays) else ExitCode.SUCCESS
    )


def add(
    files: Annotated[list[str], typer.Argument(metavar="RUN.json …", help="Records, or - for one on standard input.")],
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Add records to a store, each in a file of its own. What is no record is named, and the others are added.

    Exits with 2 if a file was not added.
    """
    from harness.fleet.files import MOST_BYTES, read_bounded
    from harness.fleet.store import Store
    from harness.report.storage import RUN_FILE

    bad = 0
    with clear_errors():
        kept = Store(store)
        for name in files:
            try:
                path = Path(name)
                if name == "-":
                    text = sys.stdin.read(MOST_BYTES + 1)
                else:
                    text = read_bounded(path / RUN_FILE if path.is_dir() else path)
                typer.echo(f"added {kept.add(text)}")
            except ValueError as error:
                bad += 1
                say(f"error: {name}: {error}; not added")
    raise typer.Exit(ExitCode.USAGE if bad else ExitCode.SUCCESS)
