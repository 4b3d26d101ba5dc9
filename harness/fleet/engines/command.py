"""Runs the command line tools of an engine: argument lists, never a shell, and each with a time limit."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence

from harness.errors import UsageError
from harness.report.printable import one_line, shortened

_LIMIT_S = 60.0
#: What kubectl writes to its log before it says what is wrong.
_LOG = re.compile(r"[IWEF]\d{4} [\d:.]+ ")
#: What a node may be called in a command: nothing that a tool takes for an option, a list or a pattern of nodes.
_NODE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


class EngineError(UsageError):
    """A tool of the engine is missing, does not answer, or refuses."""

    def __init__(self, command: Sequence[str], why: str) -> None:
        self.command, self.why = tuple(command), why
        super().__init__(f"{shlex.join(command)}: {why}")


def answer(command: Sequence[str], limit_s: float = _LIMIT_S) -> str:
    """Run a command, and return what it prints. Raise EngineError, in one line, if it does not end with 0."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except FileNotFoundError as error:
        raise EngineError(command[:1], "not found; is its client installed on this machine?") from error
    except OSError as error:
        raise EngineError(command, error.strerror or str(error)) from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(command, f"no answer within {limit_s:g} s") from error
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        said = next((line for line in lines if not _LOG.match(line)), lines[0] if lines else "")
        raise EngineError(command, shortened(said, 300) or f"exit code {done.returncode}")
    return done.stdout


def is_node(name: str) -> bool:
    """Whether a text can be the name of one node. Names come from records, and ``n[1-99]`` would be 99 nodes."""
    return _NODE.fullmatch(name) is not None


def plain_reason(text: str, most: int = 200) -> str:
    """Make a text that a scheduler keeps and shows: one line without quotes, of at most ``most`` characters."""
    bare = re.sub(r"[\"'`$\\|;&<>]", "", one_line(text)).encode("ascii", "replace").decode("ascii")
    return shortened(bare, most).replace("…", "...")
