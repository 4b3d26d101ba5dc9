"""What an engine has to be able to do: name the machines, and run one command on each."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.report.storage import RUN_FILE

#: The harness of this environment, which machines have too.
HERE = (sys.executable, "-m", "harness")


@dataclass(frozen=True, slots=True)
class Asked:
    """A machine that is asked for a result, or why it is not."""

    name: str
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class MachineRun:
    """What each machine runs. ``folder``: that of the run, with one for each machine, if the engine needs a folder."""

    #: The arguments of the command but for the report folder.
    arguments: tuple[str, ...]
    folder: Path
    #: How long a machine may take, in seconds.
    limit_s: float
    #: How many machines run at once.
    at_once: int = 32
    #: The command of the harness: ``validate``, or another that takes ``--json``, ``--quiet`` and ``--report``.
    command: tuple[str, ...] = ("validate",)
    #: The file in the folder of a machine that says that it has finished.
    result: str = RUN_FILE
    #: Whether the machines only exchange data with each other. Then no GPU is used.
    links: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a machine: its record as text, where the engine carries it, or why there is none.

    With neither, the record is in the folder of the machine. With both, the text is what came before the end.
    """

    machine: str
    text: str | None = None
    why: str = ""


class Engine(Protocol):
    """A way to run a command on many machines."""

    name: str
    #: Whether machines write to the folder of the run; otherwise the engine brings what they print.
    needs_folder: bool

    def machines(self) -> list[Asked]:
        """Return the machines. Raise UsageError, in one line, if the engine cannot be used."""

    def addresses(self, machines: Sequence[str]) -> dict[str, str]:
        """Return the names or addresses by which the machines reach each other."""

    def run(self, machines: Sequence[str], work: MachineRun) -> Generator[Done, None, None]:
        """Run the work, and yield each machine when it is done. Closing the iterator ends what still runs."""
