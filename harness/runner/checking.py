"""The task of a worker process that runs checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from harness.checks.check import CheckContext, Level
from harness.checks.execute import execute
from harness.checks.suite import load_suite
from harness.runner.messages import Finished, Ready, Started

if TYPE_CHECKING:
    from harness.runner.worker import Send


@dataclass(frozen=True)
class Arguments:
    """The task's arguments: a device spec, a suite (``module:attribute``), and ids of its checks in order."""

    spec: str
    suite: str
    checks: tuple[str, ...]
    level: Level = Level.QUICK


def run(arguments: dict[str, object], send: Send) -> None:
    """Configure the devices, run the checks, and send each result as it comes."""
    asked = TypeAdapter(Arguments).validate_python(arguments)
    suite = load_suite(asked.suite)
    by_id = {check.id: check for check in suite.select(asked.checks)}
    devices = suite.configure(asked.spec)
    send(Ready(devices.names, devices.reason, suite.fingerprint(devices)))
    machine = suite.machine(devices) if suite.machine is not None else None
    context = CheckContext(devices, level=asked.level, machine=machine)
    for check_id in asked.checks:
        send(Started(check_id))
        send(Finished(execute(by_id[check_id], context)))
