"""The task of a worker process that runs checks."""

from __future__ import annotations

import gc
from pathlib import Path

from pydantic import TypeAdapter

from harness.checking.check import CheckContext, Level
from harness.checking.execute import execute
from harness.checking.stations import Station, through
from harness.checking.suite import load_suite
from harness.records import RunRecord
from harness.runner.job import typed_task
from harness.runner.messages import Finished, Ready, Started
from harness.runner.worker import Send, wait_for_parent
from harness.softgpu import DescribedGpus, loaded as software_gpus


@typed_task
def run(
    send: Send,
    spec: str,
    suite: str,
    checks: tuple[str, ...],
    level: Level = Level.QUICK,
    history: tuple[Path, ...] = (),
    waits: bool = False,
) -> None:
    """Configure the devices of ``spec``, run the checks of a suite (``module:attribute``), and send each result.

    ``history`` are files of earlier runs of this machine. One that ``waits`` runs no check before its parent says so.
    """
    gc.disable()
    loaded = load_suite(suite)
    by_id = {check.id: check for check in loaded.select(checks)}
    devices = loaded.configure(spec)
    fingerprint, machine = loaded.fingerprint(devices), loaded.machine(devices) if loaded.machine else None
    # With those that cannot be used, so that a report can say which they are.
    cards = (*machine.cards, *machine.unusable) if machine is not None else ()
    # What was imported stays: to look for garbage in it takes a tenth of the start.
    gc.freeze()
    gc.enable()
    # The default looks for garbage hundreds of times while graphs are built, and finds little.
    gc.set_threshold(20_000, 50, 50)
    described = isinstance(software_gpus(), DescribedGpus)
    send(Ready(devices.names, devices.reason, fingerprint, cards, described=described))
    earlier = tuple(TypeAdapter(RunRecord).validate_json(file.read_bytes()) for file in history)
    if waits:
        wait_for_parent()
    context = CheckContext(devices, level=level, machine=machine, history=earlier, described=described)
    if not devices:
        # They say why there is none, whatever was selected.
        by_id |= {check.id: check for check in loaded.checks if not check.minimum_devices}
        checks = (*(check_id for check_id in by_id if check_id not in checks), *checks)
    stations: tuple[Station, ...] = ()
    if described and loaded.watch is not None:
        watch = loaded.watch()
        watch.cards_are(cards)
        stations = (watch.judged,)
    for check_id in checks:
        send(Started(check_id))
        result = through(execute(by_id[check_id], context), stations)
        # A call that never returns has kept a device: what is left to do takes another process.
        spent = bool(getattr(machine, "spent", False))
        send(Finished(result, spent=spent))
