"""The task of a worker process that traces a function of the user's."""

from __future__ import annotations

from pathlib import Path

from harness.runner.job import typed_task
from harness.runner.messages import Answer
from harness.runner.target import Target
from harness.runner.users_error import users_code
from harness.runner.worker import Send


@typed_task
def run(send: Send, spec: str, file: Path, function: str, save: Path) -> None:
    """Configure the devices of ``spec``, trace one call of ``function`` in ``file``, and save the trace."""
    from harness.devices.runtime import configure
    from harness.evidence.tracing import trace

    target = Target(file, function)
    devices = configure(spec)
    with users_code(target):
        made = trace(target.load())
    made.save(save)
    send(Answer({"ops": len(made.ops), "reason": devices.reason, "conclusion": made.conclusion(devices)}))
