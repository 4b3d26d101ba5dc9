"""``harness burnin``: all hardware checks, again and again for hours."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness import __version__
from harness.checking.check import Level
from harness.cli.endings import Ended
from harness.cli.errors import clear_errors, code_of, exit_code, refuse, say
from harness.cli.options import (
    DevicesOption,
    FakeOption,
    ProfilesOption,
    ReportOption,
    check_report,
    check_spec,
    number,
    spec_of,
)
from harness.cli.suite import suite, suite_reference
from harness.devices.host import read_host
from harness.errors import HarnessError, UsageError
from harness.plural import plural
from harness.runner.limits import DEFAULT_TIMEOUT_S

if TYPE_CHECKING:
    from harness.checking.run import Event
    from harness.report.burnin import BurnIn
    from harness.report.recording import RunRecording

DEFAULT_FOLDER = Path("harness-burnin")
#: The checks of a round, in this order: the others follow on cards that are warm. Settings and versions do not change.
FIRST, LEFT_OUT = "sustained-load", ("software", "memory-settings", "isolation")


def burnin(
    devices: DevicesOption = "auto",
    hours: Annotated[float, typer.Option("--hours", parser=number, metavar="H", help="How long, in hours.")] = 0.0,
    minutes: Annotated[
        float, typer.Option("--minutes", parser=number, metavar="M", help="Minutes, added to --hours.")
    ] = 0.0,
    report: ReportOption = DEFAULT_FOLDER,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start over instead of continuing an interrupted burn-in.")
    ] = False,
    profiles: ProfilesOption = None,
    fake: FakeOption = None,
) -> None:
    """Run the hardware checks in rotation, under load, for a stated time.

    The checks software, memory-settings and isolation are left out: their results do not change. Each result is saved
    at once, so that after ^C or a reboot the same command continues the burn-in. The report says when each error first
    occurred and how often, and shows temperature, clock, power and rate of each card over the whole time.
    """
    from harness.hardware.profile import use_profiles
    from harness.report.burnin import FILE, BurnIn
    from harness.report.recording import RunRecording
    from harness.report.terminal import print_report, stdout_console

    with clear_errors():
        use_profiles(profiles)
        limit_s = 3600 * hours + 60 * minutes
        if not (math.isfinite(limit_s) and limit_s > 0):
            raise UsageError(f"--hours {hours:g} --minutes {minutes:g}; accepted: a time above 0, such as --hours 8")
        devices = spec_of(devices, fake)
        check_spec(devices)
        names = [check.id for check in suite().checks if check.hardware and check.id not in LEFT_OUT]
        checks = tuple(sorted(names, key=lambda name: name != FIRST))
        check_report(report)
        kept = BurnIn(report / FILE, devices) if restart else BurnIn.opened(report, devices)
        if restart or kept.is_over(checks, kept.elapsed_s, limit_s):
            kept.begin_again()
    recording = RunRecording(
        report,
        harness=__version__,
        command=tuple(sys.argv),
        spec=devices,
        planned=checks,
        level=str(Level.QUICK),
        earlier_s=kept.elapsed_s,
        host=read_host(),
    )
    if kept.entries:
        say(f"continuing after {plural(kept.rounds, 'round')} and {kept.elapsed_s / 60:.1f} min")
    code = None
    try:
        burn(kept, limit_s, lambda left: _round(devices, left, report / "logs"), recording)
        recording.complete()
    except Ended as ended:
        recording.results_are(kept.results())
        code = ended.exit_code
        recording.cut_short(code)
        say("stopped; run the same command again to continue, or with --restart to start over")
    except HarnessError as error:
        recording.results_are(kept.results())
        recording.cut_short(exit_code(error), str(error))
        if kept.entries:
            print_report(stdout_console(), recording.record, recording.path, recording.page)
        refuse(error)
    print_report(stdout_console(), recording.record, recording.path, recording.page)
    raise typer.Exit(code_of(recording, code))


def burn(
    kept: BurnIn,
    limit_s: float,
    begin_round: Callable[[tuple[str, ...]], Iterator[Event]],
    recording: RunRecording,
    clock_s: Callable[[], float] = time.monotonic,
) -> None:
    """Run rounds until the time is over, and keep each result with its time.

    ``begin_round`` gets the checks to run: those that an interrupted round lacks, then all of them. The first round is
    run to its end, so that every check has a result; a later one ends early with the time. Where no device can be used,
    it is the only one.
    """
    from harness.checking.stations import MissingLibraries, through
    from harness.hardware.watch import CardWatch
    from harness.runner.messages import Finished, Ready

    began_s, watch, idle = clock_s() - kept.elapsed_s, CardWatch(), False
    stations = (watch.judged, MissingLibraries().judged)
    planned, left = recording.record.planned, kept.left_of_round(recording.record.planned)
    number = kept.rounds - bool(left)

    def over() -> bool:
        return kept.is_over(planned, clock_s() - began_s, limit_s)

    while not over() and not idle:
        number += 1
        with contextlib.closing(begin_round(left or planned)) as events:  # type: ignore[type-var]
            left = ()
            for event in events:
                if isinstance(event, Ready):
                    idle = not event.devices
                    watch.cards_are(event.cards)
                    recording.devices_are(event.reason, event.fingerprint, event.cards, described=event.described)
                elif isinstance(event, Finished):
                    result = through(event.result, stations)
                    kept.add(clock_s() - began_s, number, result)
                    say(f"round {number}, {(clock_s() - began_s) / 60:.1f} min: {result.verdict} {result.check}")
                    if over():
                        break
        recording.results_are(kept.results())


def _round(spec: str, checks: tuple[str, ...], logs: Path) -> Iterator[Event]:
    from harness.checking.run import Plan, run_checks

    return run_checks(Plan(spec, checks, logs, suite_reference(), DEFAULT_TIMEOUT_S, level=Level.QUICK))
