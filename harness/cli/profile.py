"""``harness profile``: where the time of a function of the user's goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.errors import clear_errors, say
from harness.cli.options import DEFAULT_REPORT, DevicesOption, ReportOption, check_report, check_spec, whole_number
from harness.errors import UsageError
from harness.extras import require
from harness.records import ExitCode

if TYPE_CHECKING:
    from harness.speed.timeline.record import Profile

#: Calls that are profiled, unless the user says otherwise.
DEFAULT_CALLS = 10
_MOST_CALLS = 10_000


def profile_function(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py:FUNCTION", help="The function; it is called without arguments.")
    ],
    devices: DevicesOption = "auto",
    calls: Annotated[
        int, typer.Option("--calls", parser=whole_number, metavar="N", help="How many calls are profiled.")
    ] = DEFAULT_CALLS,
    report: ReportOption = DEFAULT_REPORT,
) -> None:
    """Show where a function spends its time: what each device does, what overlaps, what waits for what.

    The function is warmed up, then called N times, without arguments, under TensorFlow's profiler. Prints a table and
    the causes that it finds for a missing speedup, and what each device's memory holds at its peak. Writes a page
    (DIR/profile.html), DIR/profile.json, pictures (DIR/timeline.png and .svg, DIR/memory.png and .svg),
    DIR/timeline.json (open it in ui.perfetto.dev or chrome://tracing) and DIR/tensorboard (for TensorBoard). What the
    function prints goes to DIR/logs/profile.log. The devices are configured before the file is loaded.
    """
    from pydantic import TypeAdapter

    from harness.report.profile import PROFILE_FILE, print_profile
    from harness.report.publish import page_beside
    from harness.report.storage import save_json
    from harness.report.terminal import stdout_console
    from harness.runner.ask import ask
    from harness.runner.job import Job, WorkerFiles
    from harness.runner.target import Target
    from harness.speed.timeline.record import Profile

    with clear_errors():
        require("matplotlib")
        if not 1 <= calls <= _MOST_CALLS:
            raise UsageError(f"--calls {calls}; accepted: a number from 1 to {_MOST_CALLS:,}")
        check_spec(devices)
        found = Target.parse(target)
        check_report(report)
        files = WorkerFiles.create(report / "logs", "profile")
        arguments: dict[str, object] = {
            "spec": devices,
            "file": str(found.path),
            "function": found.function,
            "calls": calls,
            "folder": str(report.absolute()),
        }
        answer = ask(Job("harness.speed.timeline.process:run", arguments), files)
        profile = TypeAdapter(Profile).validate_python(answer["profile"])
    print_profile(stdout_console(), profile)
    with clear_errors():
        saved = save_json(profile, report, PROFILE_FILE)
        page = page_beside(report, "profile.html", lambda: _page(profile))
    pictures = ", ".join(str(report / name) for name in ("timeline.png", *["memory.png"] * bool(profile.memory)))
    typer.echo(f"Record: {saved}; pictures: {pictures}; trace for Perfetto: {report / 'timeline.json'}")
    if page is not None:
        typer.echo(f"Page: {page}")
    if not any(times.ops for times in profile.times):
        ran = any(times.forward_ops or times.gradient_ops for times in profile.times)
        nothing = "no op is known to have run on any device, so there is nothing to show"
        say(f"{found}: {'how long each device worked is unknown' if ran else nothing}")
        raise typer.Exit(ExitCode.UNKNOWN)


def _page(profile: Profile) -> str:
    from harness.report.html.profile_page import profile_page

    return profile_page(profile)
