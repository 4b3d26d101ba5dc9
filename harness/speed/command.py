"""Runs a command that writes a pytest-benchmark JSON file, in a process group of its own, and reads the file.

To compare revisions of a git repository, each is checked out in a temporary work tree.

``{json}`` in the command stands for the file's path. A command without it is expected to run pytest, and gets
``--benchmark-json`` in the environment variable ``PYTEST_ADDOPTS``. No shell is used.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from harness.errors import InvalidBaseline, UsageError, WorkerFailed
from harness.speed.baseline import SavedRun, read_run

#: Stands for the path of the JSON file in a command.
PLACEHOLDER = "{json}"
#: pytest's variable for additional options.
ADD_OPTIONS = "PYTEST_ADDOPTS"
#: Characters shown of a failed command's output.
_LAST_CHARACTERS = 2000
#: What ends a run from outside.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def parse_command(text: str) -> tuple[str, ...]:
    """Split a command into arguments, as a POSIX shell does.

    Raise UsageError if it is empty, or a quotation mark is not closed.
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
        WorkerFailed: the exit code is not 0.
        InvalidBaseline: no speedups were written.
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
        output = log.read_text(encoding="utf-8", errors="replace")[-_LAST_CHARACTERS:]
        raise WorkerFailed(f"{shlex.join(command)}: exit code {returncode}; output in {log}: {output}")
    try:
        return read_run(file)
    except InvalidBaseline as error:
        why = f"{error.why}; a command that does not run pytest must contain {PLACEHOLDER}, which stands for this path"
        raise InvalidBaseline(f"{shlex.join(command)}: {file}", why) from error


def _run(command: tuple[str, ...], environment: dict[str, str], folder: Path | None, log: Path) -> int:
    process = None
    with log.open("wb") as output:
        try:
            with uninterrupted():  # else a process that has just been started would go on
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            return process.wait()
        except OSError as error:
            raise UsageError(f"{command[0]} cannot be started: {error.strerror or error}") from error
        finally:
            # Also after a normal end: no child may go on and disturb the next measurement.
            if process is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextlib.contextmanager
def worktrees(revisions: tuple[str, ...], below: Path, repository: Path) -> Iterator[tuple[Path, ...]]:
    """Check out each revision in a folder ``below``; yields the folders.

    Raise UsageError if git, the repository or a revision is missing.
    """
    verify = ("rev-parse", "--verify", "--end-of-options")
    commits = [_git(repository, *verify, f"{name}^{{commit}}") for name in revisions]
    made: list[Path] = []
    try:
        for index, commit in enumerate(commits):
            folder = below / f"revision-{index}-{commit[:12]}"
            made.append(folder)
            _git(repository, "worktree", "add", "--quiet", "--detach", str(folder), commit)
        yield tuple(made)
    finally:
        for folder in made:
            with contextlib.suppress(UsageError):  # it was not made
                _git(repository, "worktree", "remove", "--force", str(folder))


def _git(repository: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=False, timeout=600
        )
    except OSError as error:
        raise UsageError(f"git cannot be started: {error.strerror or error}; comparing revisions needs git") from error
    if done.returncode != 0:
        output = " ".join(done.stderr.split())
        raise UsageError(f"git {' '.join(arguments)}: {output}; accepted: revisions of the repository in {repository}")
    return done.stdout.strip()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Have ^C and SIGTERM wait until the body has ended, if Python handles them, as it does in the main thread alone.

    ``subprocess.Popen`` forgets a process that it has just started if a handler raises an exception.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:  # of several, the first: what it raises ends the run
            signal.raise_signal(came[0])
