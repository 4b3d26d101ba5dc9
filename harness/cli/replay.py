"""``harness replay``: runs a saved failure again."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.errors import clear_errors, say
from harness.records import ExitCode
from harness.temporary import temporary_folder


def replay(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file that a failing test or verify(..., save=FOLDER) wrote.")
    ],
) -> None:
    """Run a saved failure again.

    Runs the command that failed, and gives its call of verify the saved inputs, variables and seed. The exit code is
    that of the command; it is 3 if the command succeeds without such a call.
    """
    from harness.judgement.saved_case import REPLAY, TAKEN, SavedCase

    with clear_errors():
        case = SavedCase.load(file)
    typer.echo(f"{case.place}: {case.reason}")
    typer.echo(f"running {shlex.join(case.command)} in {case.cwd}")
    with temporary_folder("harness-replay-") as folder:
        taken = folder / "taken"
        environment = {**os.environ, REPLAY: str(file.resolve()), TAKEN: str(taken)}
        code = subprocess.run(case.command, cwd=case.cwd, env=environment, check=False).returncode
        if not taken.exists():
            say(f"the case was not replayed: no call of verify at {case.place} was reached; the program has changed")
            code = code or ExitCode.UNKNOWN
    raise typer.Exit(code)
