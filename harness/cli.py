"""The command line: a thin front over the rooms. Nothing here loads TensorFlow; worker processes do.

Exit codes: 0 all PASS or WARN; 1 a FAIL; 2 usage or configuration error; 3 UNKNOWN, no verdict or nothing exercised;
130 ended by ^C, 143 by SIGTERM.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from harness import (
    __version__,
    cli_calibrate,
    cli_compare,
    cli_profile,
    cli_profile_machine,
    cli_run,
    cli_scale,
    cli_serve,
)
from harness.checks.check import Level
from harness.cli_endings import Ended, heed_signals
from harness.cli_errors import clear_errors, exit_code, refuse, say
from harness.cli_options import DEFAULT_REPORT, DevicesOption, ReportOption, check_spec
from harness.errors import HarnessError, UsageError
from harness.records import ExitCode
from harness.runner.limits import DEEP_TIMEOUT_S, DEFAULT_TIMEOUT_S, STARTUP_LIMIT_S

if TYPE_CHECKING:
    from rich.console import Console

    from harness.checks.check import Check
    from harness.checks.suite import Suite
    from harness.report.recording import Recording

#: For the harness's own tests: another suite than the one that is shipped, as ``module:attribute``.
SUITE_VARIABLE = "_HARNESS_SUITE"

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Proves where each op and gradient of a multi-device TensorFlow program ran, and that its values are right.",
    epilog="Exit codes: 0 all PASS or WARN, 1 a FAIL, 2 usage or configuration error, 3 UNKNOWN: no verdict, "
    "or nothing was exercised; 130 when ended by ^C, 143 by SIGTERM.",
)


def main() -> NoReturn:
    """Run the command line, and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        # A path or a message may hold what the terminal's encoding cannot say.
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        app(prog_name="harness")
    except Ended as ended:
        say(f"ended by {ended}")
        sys.exit(ended.exit_code)
    sys.exit(ExitCode.SUCCESS)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"harness {__version__}")
        raise typer.Exit


@app.callback()
def _harness(
    version: Annotated[  # noqa: ARG001 - its callback does it all
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    heed_signals()


@app.command(short_help="Check that multi-device TensorFlow is right here.")
def validate(
    devices: DevicesOption = "auto",
    report: ReportOption = DEFAULT_REPORT,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="ID", help="Run this check alone; may be given again.")
    ] = None,
    level: Annotated[
        Level, typer.Option("--level", help="How much: quick, standard (more checks and examples), deep (the most).")
    ] = Level.QUICK,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="S", help="Time limit of a check, in seconds: 120; 3600 with --level deep."),
    ] = None,
) -> None:
    """Check that multi-device TensorFlow is right here, and prove it.

    Prints a table and writes DIR/run.json; TensorFlow's own output goes to DIR/logs.
    """
    from harness.report.recording import Recording
    from harness.report.terminal import console_for, print_report

    with clear_errors():
        limit = _time_limit(timeout, level)
        check_spec(devices)
        suite = _suite()
        checks = suite.select(only or (), level)
    console = console_for(sys.stdout)
    recording = Recording(
        report,
        harness=__version__,
        command=tuple(sys.argv),
        spec=devices,
        planned=tuple(check.id for check in checks),
        level=level.value,
    )
    logs = report / "logs"
    if recording.problem is not None:
        logs = Path(tempfile.mkdtemp(prefix="harness-logs-"))
        say(f"error: {recording.problem}; going on without a record, the logs are in {logs}")
    try:
        _run(checks, devices, level, limit, logs, console, recording)
    except Ended as ended:
        recording.cut_short(ended.exit_code)
        print_report(console, recording.record, recording.path)
        raise
    except HarnessError as error:
        recording.cut_short(exit_code(error), str(error))
        if recording.record.results:
            print_report(console, recording.record, recording.path)
        refuse(error)
    print_report(console, recording.record, recording.path)
    code = recording.record.exit_code
    if recording.problem is not None:
        say(f"error: {recording.problem}")
        code = code or ExitCode.USAGE  # a run that leaves no record is no success
    raise typer.Exit(code)


def _run(
    checks: tuple[Check, ...],
    spec: str,
    level: Level,
    timeout: float,
    logs: Path,
    console: Console,
    recording: Recording,
) -> None:
    """Run the checks, show them, and record them as they end."""
    from harness.report.progress import display
    from harness.runner.messages import Finished, Ready, Started
    from harness.runner.run import Plan, run_checks

    by_id = {check.id: check for check in checks}
    plan = Plan(spec, tuple(by_id), logs, timeout, suite=_suite_reference(), level=level)
    with display(console, len(checks)) as shown, contextlib.closing(run_checks(plan)) as events:
        for event in events:
            if isinstance(event, Ready) and recording.record.fingerprint is None:
                recording.devices_are(event.reason, event.fingerprint)
                shown.note(f"devices: {event.reason or spec}")
            elif isinstance(event, Started):
                check = by_id[event.check]
                shown.started(check.id, check.title, check.typical_s)
            elif isinstance(event, Finished):
                recording.add(event.result)
                shown.finished(event.result)
    recording.complete()


@app.command("devices", short_help="Show the devices and profiles that are here.")
def show_devices(
    devices: Annotated[
        str | None, typer.Option("--devices", metavar="SPEC", help="Configure these, and show what they are.")
    ] = None,
    report: ReportOption = DEFAULT_REPORT,
) -> None:
    """Show what is here: the physical devices, what 'auto' would take, and the profiles that are shipped."""
    from harness.devices.profile import shipped_profiles
    from harness.report.machine import Machine, print_machine
    from harness.report.terminal import console_for
    from harness.runner.ask import ask
    from harness.runner.job import Job, WorkerFiles

    with clear_errors():
        if devices is not None:
            check_spec(devices)
        job = Job("harness.runner.machine:run", {"spec": devices})
        answer = ask(job, WorkerFiles.create(report / "logs", "devices"), limit_s=STARTUP_LIMIT_S)
        print_machine(console_for(sys.stdout), Machine.of(answer), shipped_profiles())


@app.command("list", short_help="List the checks.")
def list_checks() -> None:
    """List the checks: what each proves, what it needs, how long it takes."""
    from harness.report.checks import print_checks
    from harness.report.terminal import console_for

    print_checks(console_for(sys.stdout), _suite().checks)


@app.command("trace", short_help="Show where the ops of a function of yours run.")
def trace_function(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py:FUNCTION", help="A function; it is called once, without arguments.")
    ],
    devices: DevicesOption = "auto",
    save: Annotated[
        Path | None, typer.Option("--save", metavar="PATH", dir_okay=False, help="Keep the trace, as JSON.")
    ] = None,
    report: ReportOption = DEFAULT_REPORT,
) -> None:
    """Call a function of yours once, without arguments, and show which op ran on which device.

    A function that needs arguments is refused: wrap it in one that gives them.
    The devices are configured before the file is loaded.
    """
    from harness.evidence.trace import Trace
    from harness.report.terminal import console_for
    from harness.runner.ask import ask
    from harness.runner.job import Job, WorkerFiles
    from harness.runner.target import Target

    with clear_errors():
        check_spec(devices)
        found = Target.parse(target)
        files = WorkerFiles.create(report / "logs", "trace")
        kept = (save or files.log.with_suffix(".json")).absolute()
        arguments: dict[str, object] = {
            "spec": devices,
            "file": str(found.path),
            "function": found.function,
            "save": str(kept),
        }
        sys.stdout.flush()
        # What the user's function prints belongs to the user: it goes where the function's stdout would go.
        ask(Job("harness.runner.tracing:run", arguments), files, stdout=sys.stdout.fileno())
        made = Trace.load(kept)
    console = console_for(sys.stdout)
    if not made.ops:
        say(f"{found}: TensorFlow executed no op for it, so there is nothing to show")
        raise typer.Exit(ExitCode.UNKNOWN)
    console.print(made.table())
    if save is not None:
        typer.echo(f"trace: {save}")


cli_profile.register(app)
cli_profile_machine.register(app)
cli_scale.register(app)
cli_run.register(app)
cli_serve.register(app)
cli_compare.register(app)
cli_calibrate.register(app)


def _time_limit(timeout: float | None, level: Level) -> float:
    if timeout is None:
        return DEEP_TIMEOUT_S if level is Level.DEEP else DEFAULT_TIMEOUT_S
    if not (math.isfinite(timeout) and timeout > 0):
        raise UsageError(f"--timeout {timeout:g}: not a time limit; accepted: a number of seconds above 0")
    return timeout


def _suite_reference() -> str:
    from harness.checks.suite import DEFAULT_SUITE

    return os.environ.get(SUITE_VARIABLE, DEFAULT_SUITE)


def _suite() -> Suite:
    from harness.checks.suite import load_suite

    return load_suite(_suite_reference())


if __name__ == "__main__":
    main()
