"""``harness scale``: how the time of a function of the user's changes with the number of devices."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.endings import Ended
from harness.cli.errors import clear_errors, exit_code
from harness.cli.options import (
    DEFAULT_REPORT,
    ReportOption,
    check_report,
    check_seconds,
    check_spec,
    is_spec,
    number,
    whole_number,
)
from harness.errors import ReportError, UsageError
from harness.extras import require
from harness.records import ExitCode

if TYPE_CHECKING:
    from harness.speed.scaling.processes import Rounds
    from harness.speed.scaling.record import Mode, ScaleRecord

#: Enough for an interval that says something: Student's t with four degrees of freedom is 2.8.
DEFAULT_ROUNDS = 5
DEFAULT_BUDGET_S = 2.0


def scale_function(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:FUNCTION",
            help="FUNCTION(devices) returns a callable without arguments that does the whole work on those devices.",
        ),
    ],
    devices: Annotated[
        str,
        typer.Option("--devices", metavar="SPEC,SPEC,…", help="Device sets to compare, such as cores:1,cores:2."),
    ],
    weak: Annotated[
        bool,
        typer.Option(
            "--weak", help="Weak scaling: FUNCTION(devices, scale) does `scale` times the work of one device."
        ),
    ] = False,
    rounds: Annotated[
        int,
        typer.Option("--rounds", parser=whole_number, metavar="N", help="How many processes measure each device set."),
    ] = DEFAULT_ROUNDS,
    budget: Annotated[
        float, typer.Option("--budget", parser=number, metavar="S", help="Seconds that each process measures for.")
    ] = DEFAULT_BUDGET_S,
    report: ReportOption = DEFAULT_REPORT,
) -> None:
    """Show how a function's time changes with the number of devices.

    FUNCTION is called once in each process, with the keyword argument `devices`: a sequence of devices, each with a
    name for tf.device. It returns a callable without arguments, which does all of the work on those devices. With
    --weak, FUNCTION also gets the keyword argument `scale`, the number of devices, and the callable has to do `scale`
    times as much work. A measured time ends when what the callable returns has been computed.

    Each device set is measured in N processes, a fresh one in each round, in random order. Prints the speedup and the
    efficiency of each with their intervals, fits Amdahl's serial fraction (Gustafson's with --weak), and writes
    DIR/scale.json and DIR/scale.png. A device set that fails is reported, and the others go on; ^C keeps what was
    measured.
    """
    from harness.report.terminal import print_line, stdout_console
    from harness.runner.target import Target
    from harness.speed.scaling.processes import ACCEPTED, Rounds

    with clear_errors():
        require("scipy", "matplotlib")
        specs = _specs(devices)
        if rounds < 1:
            raise UsageError(f"--rounds {rounds}; accepted: 1 or more (5 or more give a useful interval)")
        check_seconds("--budget", budget)
        found = Target.parse(target, ACCEPTED)
        check_report(report)
        mode: Mode = "weak" if weak else "strong"
        measuring = Rounds(found, specs, mode, rounds, budget, report / "logs")
    console = stdout_console()
    try:
        with contextlib.closing(measuring.measure()) as steps:
            for number, point in steps:
                done = f"{point.rounds[-1].median_ns / 1e6:.2f} ms" if point.error is None else f"failed: {point.error}"
                print_line(console, f"round {number + 1} of {rounds}, {point.spec}: {done}")
    except Ended:
        _finish(measuring, report, complete=False)
        raise
    record = _finish(measuring, report, complete=True)
    if not any(point.rounds for point in record.points):
        raise typer.Exit(max(exit_code(error) for error in measuring.failures.values()))
    raise typer.Exit(ExitCode.FAILURE if measuring.failures else ExitCode.SUCCESS)


def _finish(measuring: Rounds, report: Path, *, complete: bool) -> ScaleRecord:
    from harness.report.scale import SCALE_FILE, SCALE_PICTURE, print_scale
    from harness.report.storage import save_json
    from harness.report.terminal import stdout_console
    from harness.speed.scaling.curve import curve_of
    from harness.speed.scaling.picture import draw_curve

    with clear_errors():
        outputs = measuring.compare()
    record = curve_of(
        tuple(measuring.points.values()),
        target=str(measuring.target),
        mode=measuring.mode,
        rounds=measuring.rounds,
        complete=complete,
    )
    record = replace(record, fingerprint=measuring.fingerprint, outputs=outputs)
    print_scale(stdout_console(), record)
    with clear_errors():
        saved = save_json(record, report, SCALE_FILE)
        picture = report / SCALE_PICTURE
        try:
            drawn = draw_curve(record, [picture])
        except OSError as error:
            raise ReportError(report, error.strerror or str(error)) from error
    typer.echo(f"Record: {saved}" + (f"; picture: {picture}" if drawn else ""))
    return record


def _specs(text: str) -> list[str]:
    """The device sets of ``--devices``, checked. Commas are within the spec of a cluster too."""
    specs: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if specs and specs[-1].startswith("cluster:") and part and not is_spec(part):
            specs[-1] += f",{part}"
        else:
            specs.append(part)
    if len(set(specs)) != len(specs) or not all(specs):
        raise UsageError(
            f"--devices {text!r}; accepted: device specs that differ, separated by commas, such as cpu:1,cpu:2"
        )
    for spec in specs:
        check_spec(spec)
    return specs
