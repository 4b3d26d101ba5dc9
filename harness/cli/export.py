"""``harness export``: a run in the form that other tools read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.errors import clear_errors
from harness.cli.options import DEFAULT_REPORT
from harness.errors import ReportError, UsageError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Write a run in the form that other tools read.")


@app.callback()
def _export() -> None:
    pass


def openmetrics(
    run: Annotated[
        Path, typer.Option("--run", metavar="RUN.json", help="The saved run, or the folder that it is in.")
    ] = DEFAULT_REPORT,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE.prom", dir_okay=False, help="The file; default: standard output."),
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="Print alert rules for Prometheus instead.")] = False,
    anonymous: Annotated[bool, typer.Option("--anonymous", help="Leave serial numbers out.")] = False,
) -> None:
    """Write a run as metrics, for the textfile collector of a node exporter. The file is written in one step."""
    from harness.fleet.metrics import ALERT_RULES, metrics_text
    from harness.report.storage import load_run, save_text

    if rules:
        typer.echo(ALERT_RULES, nl=False)
        return
    with clear_errors():
        text = metrics_text(load_run(run), anonymous=anonymous)
        if output is None:
            typer.echo(text, nl=False)
            return
        try:
            save_text(text, output.parent, output.name)
        except ReportError as error:
            raise UsageError(f"{output} cannot be written: {error.why}") from error


app.command("openmetrics", short_help="Write a run as metrics for Prometheus.")(openmetrics)
