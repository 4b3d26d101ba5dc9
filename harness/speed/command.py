"""Runs a command that writes a JSON of pytest-benchmark, in a process group of its own, and reads what it wrote.

The path of the JSON goes where the command says ``{json}``; a command that does not say it is taken for one that runs
pytest somewhere inside, and gets ``--benchmark-json`` in the environment variable ``PYTEST_ADDOPTS``. No shell is used.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from pathlib import Path

from harness.errors import InvalidBaseline, UsageError, WorkerFailed
from harness.speed.baseline import SavedRun, read_run

#: What stands in a command for the path of the JSON.
PLACEHOLDER = "{json}"
#: pytest's own variable for options that are added to those of the command line.
ADD_OPTIONS = "PYTEST_ADDOPTS"
#: How much of what a failed command said is shown.
_LAST_CHARACTERS = 2000


def parse_command(text: str) -> tuple[str, ...]:
    """The arguments of a command, split as a POSIX shell splits them.

    Raises:
        UsageError: it is empty, or a quotation mark is not closed.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"command {text!r}: {error}; accepted: a program with its arguments") from error
    if not words:
        raise UsageError(
            f"command {text!r} is empty; accepted: a program with its arguments, such as 'pytest tests/benchmarks'"
        )
    return words


def measure(command: tuple[str, ...], file: Path, *, folder: Path | None = None) -> SavedRun:
    """Run ``command`` in ``folder``, and read the speedups that it wrote to ``file``. Its output goes to ``file.log``.

    Raises:
        UsageError: there is no such program.
        WorkerFailed: it ended with another exit code than 0.
        InvalidBaseline: it wrote no speedups.
    """
    environment = dict(os.environ)
    if any(PLACEHOLDER in word for word in command):
        command = tuple(word.replace(PLACEHOLDER, str(file)) for word in command)
    else:
        options = (environment.get(ADD_OPTIONS, ""), f"--benchmark-json={shlex.quote(str(file))}")
        environment[ADD_OPTIONS] = " ".join(filter(None, options))
    log = file.with_suffix(".log")
    returncode = _run(command, environment, folder, log)
    if returncode != 0:
        said = log.read_text(encoding="utf-8", errors="replace")[-_LAST_CHARACTERS:]
        raise WorkerFailed(f"{shlex.join(command)}: exit code {returncode}; what it said is in {log}: {said}")
    try:
        return read_run(file)
    except InvalidBaseline as error:
        why = f"{error.why}; a command that does not run pytest itself has to say {PLACEHOLDER}, where the path goes"
        raise InvalidBaseline(f"{shlex.join(command)}: {file}", why) from error


def _run(command: tuple[str, ...], environment: dict[str, str], folder: Path | None, log: Path) -> int:
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"{command[0]} cannot be started: {error.strerror or error}") from error
        try:
            return process.wait()
        finally:
            # Also when it ended by itself: nothing that it started may go on and disturb what is measured next.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
