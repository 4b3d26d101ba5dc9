"""``harness replay``: runs a saved failure again."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.errors import clear_errors


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file that verify(..., save=FOLDER) wrote.")],
) -> None:
    """Run a saved failure again.

    Runs the command that failed, and gives its call of verify the saved inputs, variables and seed. The exit code is
    that of the command.
    """
    from harness.judgement.saved_case import REPLAY, SavedCase

    with clear_errors():
        case = SavedCase.load(file)
    typer.echo(f"{case.place}: {case.reason}")
    typer.echo(f"running {shlex.join(case.command)} in {case.cwd}")
    done = subprocess.run(case.command, cwd=case.cwd, env={**os.environ, REPLAY: str(file.resolve())}, check=False)
    raise typer.Exit(done.returncode)
