"""The task of a worker process that runs a script of the user's on a device of its own, as ``python SCRIPT`` would."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from harness.parallel.tasks import Slot, take

if TYPE_CHECKING:
    from harness.runner.worker import Send


@dataclass(frozen=True)
class Arguments:
    """The task's arguments: the script, what it is given, and its device."""

    script: str
    arguments: tuple[str, ...]
    slot: Slot


def run(arguments: dict[str, object], send: Send) -> None:  # noqa: ARG001 - a script says nothing but what it prints
    """Run the script. What it raises, and the code that it exits with, are those of the process."""
    asked = TypeAdapter(Arguments).validate_python(arguments)
    take(asked.slot.cpus, asked.slot.environment, asked.slot.software_gpu)
    sys.argv = [asked.script, *asked.arguments]
    sys.path.insert(0, str(Path(asked.script).resolve().parent))
    runpy.run_path(asked.script, run_name="__main__")
