"""The task of a worker process that traces a function of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from harness.runner.messages import Answer
from harness.runner.target import Target
from harness.runner.users_error import users_code

if TYPE_CHECKING:
    from harness.runner.worker import Send


@dataclass(frozen=True)
class Arguments:
    """The task's arguments: a device spec, the function's file and name, where to save the trace. Absolute paths."""

    spec: str
    file: str
    function: str
    save: str


def run(arguments: dict[str, object], send: Send) -> None:
    """Configure the devices, load the function, trace one call of it, and save the trace."""
    from harness.devices.runtime import configure
    from harness.evidence.tracing import trace

    asked = TypeAdapter(Arguments).validate_python(arguments)
    target = Target(Path(asked.file), asked.function)
    devices = configure(asked.spec)
    with users_code(target):
        made = trace(target.load())
    made.save(Path(asked.save))
    send(Answer({"ops": len(made.ops), "reason": devices.reason}))
