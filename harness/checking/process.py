"""The task of a worker process that runs checks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from harness.checking.check import CheckContext, Hardware, Level
from harness.checking.execute import execute
from harness.checking.suite import load_suite
from harness.errors import UsageError
from harness.records import RunRecord
from harness.runner.messages import Finished, Ready, Started

if TYPE_CHECKING:
    from harness.checking.suite import Suite
    from harness.devices.device import Devices
    from harness.records import Fingerprint
    from harness.runner.worker import Send


@dataclass(frozen=True)
class Arguments:
    """The task's arguments: a device spec, a suite (``module:attribute``), and ids of its checks in order.

    ``described`` is the file of a described machine, on which checks of hardware can be run in the place of a real one;
    ``history`` are files of earlier runs of this machine.
    """

    spec: str
    suite: str
    checks: tuple[str, ...]
    level: Level = Level.QUICK
    described: str = ""
    history: tuple[str, ...] = ()


def run(arguments: dict[str, object], send: Send) -> None:
    """Configure the devices, run the checks, and send each result as it comes."""
    asked = TypeAdapter(Arguments).validate_python(arguments)
    suite = load_suite(asked.suite)
    by_id = {check.id: check for check in suite.select(asked.checks)}
    devices, fingerprint, machine = (
        _described(suite, Path(asked.described)) if asked.described else _real(suite, asked.spec)
    )
    cards = machine.cards if machine is not None else ()
    send(Ready(devices.names, devices.reason, fingerprint, cards, described=bool(asked.described)))
    earlier = tuple(TypeAdapter(RunRecord).validate_json(Path(file).read_bytes()) for file in asked.history)
    context = CheckContext(devices, level=asked.level, machine=machine, history=earlier)
    for check_id in asked.checks:
        send(Started(check_id))
        send(Finished(execute(by_id[check_id], context)))


def _real(suite: Suite, spec: str) -> tuple[Devices, Fingerprint, Hardware | None]:
    devices = suite.configure(spec)
    return devices, suite.fingerprint(devices), suite.machine(devices) if suite.machine is not None else None


def _described(suite: Suite, path: Path) -> tuple[Devices, Fingerprint, Hardware]:
    if suite.described is None:
        raise UsageError(f"--fake {path}: the suite has no checks of hardware; accepted: a suite that has some")
    return suite.described(path)
