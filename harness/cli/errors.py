"""How the commands answer an error: one line on stderr, and an exit code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import typer

from harness.errors import EvidenceError, HarnessError, RefusedByWorker, TensorFlowInterfaceChanged, UsageError
from harness.records import ExitCode

if TYPE_CHECKING:
    from harness.report.recording import RunRecording


@contextlib.contextmanager
def clear_errors() -> Iterator[None]:
    """Turn a ``HarnessError`` into one line on stderr and an exit code."""
    try:
        yield
    except HarnessError as error:
        refuse(error)


def refuse(error: HarnessError) -> NoReturn:
    """Print the error, and exit."""
    say(f"error: {error}")
    if isinstance(error, RefusedByWorker) and error.details:
        typer.echo(error.details.rstrip(), err=True)
    raise typer.Exit(exit_code(error))


def exit_code(error: HarnessError) -> ExitCode:
    """Return 2 for what the user can correct, 3 where there is no evidence."""
    name = error.error if isinstance(error, RefusedByWorker) else type(error).__name__
    if name in (EvidenceError.__name__, TensorFlowInterfaceChanged.__name__):
        return ExitCode.UNKNOWN
    return ExitCode.USAGE if isinstance(error, UsageError) else ExitCode.UNKNOWN


def code_of(recording: RunRecording, code: int | None = None) -> int:
    """Return the exit code of a run, or ``code``. A run that leaves no record is no success, and says why."""
    code = recording.record.exit_code if code is None else code
    if recording.problem is not None:
        say(f"error: {recording.problem}")
        code = code or ExitCode.USAGE
    return code


def say(text: str) -> None:
    """Print one line on stderr."""
    typer.echo(f"harness: {text}", err=True)
