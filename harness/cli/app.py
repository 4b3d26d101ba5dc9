"""The command line: a thin front over the rooms. Nothing here loads TensorFlow; worker processes do."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from harness import __version__
from harness.cli import (
    advise,
    burnin,
    calibrate,
    check,
    compare,
    explain,
    export,
    fit,
    fleet_group,
    profile,
    profile_machine,
    replay,
    report,
    run,
    scale,
    selftest,
    serve,
    validate,
)
from harness.cli.endings import Ended, heed_signals
from harness.cli.errors import clear_errors, say
from harness.cli.options import DEFAULT_REPORT, DevicesOption, ReportOption, check_spec, check_writable
from harness.cli.streams import code_with_output, guarded_streams
from harness.cli.suite import suite
from harness.devices.project import Project, project_of
from harness.errors import InvalidSettings, TraceNotSaved, UsageError
from harness.extras import missing_extra, require
from harness.records import ExitCode
from harness.runner.limits import STARTUP_LIMIT_S

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Proves where each op and gradient of a multi-device TensorFlow program ran, and that its values are correct.",
    epilog="Exit codes: 0: all PASS or WARN; 1: a FAIL; 2: a usage or configuration error; 3: UNKNOWN, no verdict or "
    "nothing exercised; 130: ended by ^C; 143: ended by SIGTERM.",
)


#: Settings of a project that are named otherwise than the option.
_NAMES = {"command": "benchmark_command"}


def main() -> NoReturn:
    """Run the command line, and exit with its code."""
    with guarded_streams() as output:
        code = _exit_code()
        sys.stdout.flush()
        code = code_with_output(code, output)
    sys.exit(code)


def _exit_code() -> int:
    """Run the command, and return its exit code."""
    try:
        app(prog_name="harness")
    except SystemExit as ended:
        return int(ended.code or ExitCode.SUCCESS)
    except Ended as ended:
        say(f"ended by {ended}")
        return ended.exit_code
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        say(f"error: {missing}")
        return ExitCode.USAGE
    return ExitCode.SUCCESS


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"harness {__version__}")
        raise typer.Exit


@app.callback()
def _harness(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback does it all
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    heed_signals()
    if "-h" in sys.argv or "--help" in sys.argv:
        return
    with clear_errors():
        project = project_of(Path.cwd())
        if project is not None and "threshold" in project.settings:
            _check_threshold(project)
    if project is not None:
        context.default_map = _defaults(context, project.settings)


def _check_threshold(project: Project) -> None:
    from harness.speed.options import parse_share

    given = project.settings["threshold"]
    try:
        parse_share(given)
    except UsageError as error:
        accepted = str(error).partition("accepted: ")[2]
        raise InvalidSettings(project.file, "tool.harness.threshold", given, accepted) from error


def _defaults(context: typer.Context, settings: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The settings of a project as defaults of the commands that have such an option."""
    if any(argument.partition("=")[0] in ("--fake", "--for") for argument in sys.argv):
        settings = {name: value for name, value in settings.items() if name != "devices"}  # they name them
    commands: dict[str, Any] = getattr(context.command, "commands", {})
    return {
        name: {
            each.name: settings[_NAMES.get(each.name, each.name)]
            for each in command.params
            if each.name and _NAMES.get(each.name, each.name) in settings
        }
        for name, command in commands.items()
    }


def show_devices(
    devices: Annotated[
        str | None, typer.Option("--devices", metavar="SPEC", help="Configure and show these devices.")
    ] = None,
    report: ReportOption = DEFAULT_REPORT,
) -> None:
    """Show the physical devices, what 'auto' selects, and the shipped profiles."""
    from pydantic import TypeAdapter

    from harness.devices.profile import shipped_profiles
    from harness.report.machine import MachineFacts, print_machine
    from harness.report.terminal import stdout_console
    from harness.runner.ask import ask
    from harness.runner.job import Job, WorkerFiles

    with clear_errors():
        check_spec(devices or "auto")
        job = Job("harness.runner.machine:run", {"spec": devices})
        answer = ask(job, WorkerFiles.create(report / "logs", "devices"), limit_s=STARTUP_LIMIT_S)
        print_machine(stdout_console(), TypeAdapter(MachineFacts).validate_python(answer), shipped_profiles())


def list_checks(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the checks: what each proves, what it needs, how long it takes on two cores."""
    from harness.report.checks import print_checks
    from harness.report.terminal import stdout_console

    checks = suite().checks
    if as_json:
        fields = ("id", "title", "proves", "level", "minimum_devices", "one_process", "hardware", "typical_s")
        typer.echo(json.dumps([{name: getattr(check, name) for name in fields} for check in checks], indent=2))
    else:
        print_checks(stdout_console(), checks)


def trace_function(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py:FUNCTION", help="The function; it is called once, without arguments.")
    ],
    devices: DevicesOption = "auto",
    save: Annotated[
        Path | None, typer.Option("--save", metavar="PATH", dir_okay=False, help="Save the trace as JSON.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="PATH", dir_okay=False, help="Write a page with the placement as a graph."),
    ] = None,
    report: ReportOption = DEFAULT_REPORT,
) -> None:
    """Call a function once, without arguments, and show which op ran on which device.

    A function that needs arguments is refused: wrap it in a function without arguments.
    The devices are configured before the file is loaded.
    """
    from harness.evidence.table import table
    from harness.evidence.trace import Trace
    from harness.report.terminal import print_line, stdout_console
    from harness.runner.ask import ask
    from harness.runner.job import Job, WorkerFiles
    from harness.runner.target import Target

    with clear_errors():
        check_spec(devices)
        found = Target.parse(target)
        files = WorkerFiles.create(report / "logs", "trace")
        kept = (save or files.log.with_suffix(".json")).absolute()
        check_writable(kept.parent, lambda why: TraceNotSaved(kept, why))
        if html is not None:
            require("jinja2", "matplotlib")
            check_writable(html.absolute().parent, lambda why: TraceNotSaved(html, why))
        arguments: dict[str, object] = {
            "spec": devices,
            "file": str(found.path),
            "function": found.function,
            "save": str(kept),
        }
        sys.stdout.flush()
        # What the user's function prints belongs to the user: it goes where the function's stdout would go.
        answer = ask(Job("harness.evidence.process:run", arguments), files, stdout=sys.stdout.fileno())
        made = Trace.load(kept)
    console = stdout_console()
    if not made.ops:
        say(f"{found}: TensorFlow executed no op for this function")
        raise typer.Exit(ExitCode.UNKNOWN)
    conclusion = answer["conclusion"]
    assert isinstance(conclusion, list)
    for line in conclusion:
        print_line(console, line)
    console.print(table(made))
    if "software GPU" in str(answer["reason"]):
        typer.echo(f"devices: {answer['reason']}")
    if save is not None:
        typer.echo(f"trace: {save}")
    if html is not None:
        from harness.report.html.trace_page import trace_page
        from harness.report.storage import save_text

        with clear_errors():
            page = save_text(trace_page(made, str(found), [str(line) for line in conclusion]), html.parent, html.name)
        typer.echo(f"page: {page}")


#: In the order of the help text: name, function, and what it does in a line.
_COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("validate", validate.validate, "Check that this machine runs multi-device TensorFlow correctly."),
    ("selftest", selftest.selftest, "Plant known faults, and show how many are found."),
    ("devices", show_devices, "Show the devices and profiles of this machine."),
    ("list", list_checks, "List the checks."),
    ("check", check.check_script, "Check the step of a script with towers, and what would mend it."),
    ("advise", advise.advise, "Try the ways to run a program on several devices, and recommend one."),
    ("fit", fit.fit, "Measure whether a step fits into the memory of a device."),
    ("trace", trace_function, "Show where the ops of a function run."),
    ("profile", profile.profile_function, "Show where a function spends its time."),
    ("profile-machine", profile_machine.profile_machine, "Measure the rates that this machine's devices reach."),
    ("burnin", burnin.burnin, "Run the hardware checks for hours."),
    ("scale", scale.scale_function, "Show how a function's time changes with the number of devices."),
    ("run", run.run_tasks, "Run several programs at once, each on its own device."),
    ("serve", serve.serve, "Let other hosts use this host's devices (--devices cluster:HOST:PORT)."),
    ("compare", compare.compare, "Find speedups lost between two runs, commands or revisions."),
    ("calibrate", calibrate.calibrate, "Measure how precisely speedups can be compared on this machine."),
    ("explain", explain.explain, "Explain a kind of finding."),
    ("replay", replay.replay, "Run a saved failure again."),
    ("report", report.report, "Render a saved run again, or several side by side."),
    ("diff", report.diff_runs, "Show what changed between two saved runs."),
)
for _name, _function, _summary in _COMMANDS:
    app.command(_name, short_help=_summary)(_function)
app.add_typer(fleet_group.app, name="fleet", short_help="Run and judge many machines together.")
app.add_typer(export.app, name="export", short_help="Write a run in the form that other tools read.")


if __name__ == "__main__":
    main()
