"""``harness.distribute.equivalent``: a training under a strategy, in processes of its own, against one device."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from harness.devices.request import resolve
from harness.distribute.asynchronous_processes import train_asynchronously
from harness.distribute.batches import Data
from harness.distribute.equivalence import CollectiveCount, Equivalence
from harness.distribute.reference import LOOPS, loops_of
from harness.distribute.several import Several
from harness.distribute.strategies import known
from harness.errors import TrainingError
from harness.judgement.verification import Comparison
from harness.records import Exercised, Finding, Verdict
from harness.runner.ask import ask
from harness.runner.builder import Builder
from harness.runner.job import Job, WorkerFiles
from harness.runner.limits import LAST_RESORT_S, STARTUP_LIMIT_S


@dataclass(frozen=True)
class _Told:
    """What a process says of an ``Equivalence``: all but the traces."""

    verdict: Verdict
    reason: str
    findings: tuple[Finding, ...]
    exercised: Exercised
    comparisons: tuple[Comparison, ...]
    strategy: str
    loops: tuple[str, ...]
    steps: int
    collectives: tuple[CollectiveCount, ...]
    measured: dict[str, float]


def told(answer: dict[str, object]) -> Equivalence:
    """The judgement that a process answered with."""
    said = TypeAdapter(_Told).validate_python({name: value for name, value in answer.items() if name != "traces"})
    return Equivalence(**{field.name: getattr(said, field.name) for field in fields(said)})


def equivalent(
    strategy: str,
    build: str | Callable[[], object],
    data: object,
    steps: int,
    *,
    batch_size: int = 8,
    devices: str = "cpu:2",
    workers: int = 2,
    loops: Sequence[str] = tuple(LOOPS),
    limit_s: float = STARTUP_LIMIT_S,
    logs: str | Path | None = None,
) -> Equivalence:
    """Train on one device and under a strategy, for ``steps`` steps from the same weights, and compare step by step.

    Compared are the loss, metrics, gradients (custom loop), weights, optimizer slots, and the optimizer's counter;
    replicas must hold the same bits, variables and slots be where the strategy keeps them, and the ops and collectives
    of a step be on all devices. The bound of each value is measured: how far the run on one device moves when its
    weights and data move by one unit in the last place.

    Args:
        strategy: ``"mirrored"``, ``"central_storage"``, ``"multi_worker"``, ``"parameter_server"``,
            ``"dtensor_data"`` or ``"dtensor_model"``.
        build: a function without arguments at the top level of a module, or ``"FILE.py:FUNCTION"`` or
            ``"module:function"``; it returns a ``Training``. Each process calls it anew.
        data: ``(x, y)`` or ``{"x": x, "y": y}``: NumPy arrays ``[rows, ...]`` of any dtype, taken in their order. The
            last batch of an epoch has what is left.
        steps: how many steps to take; after the last batch the data begins anew.
        batch_size: rows of a whole batch, over all replicas.
        devices: the devices of the one process of ``mirrored``, ``central_storage`` and DTensor, as ``configure`` takes
            them.
        workers: how many processes ``multi_worker`` and ``parameter_server`` train with, one logical CPU each.
        loops: ``"custom"``, a loop of ``strategy.run``, and ``"fit"``, Keras's own.
        limit_s: seconds that the training may take once its processes are up. A hang is a finding, with the stacks of
            each process.
        logs: the folder for what the processes print; by default a temporary one, which is
            removed after a PASS.

    Raises:
        UnknownStrategy: the strategy is not known.
        TrainingError: the data, or what ``build`` returns, cannot be trained with.
        InvalidTarget: ``build`` is no function that another process can find.
        RefusedByWorker: the function raised, or the devices cannot be had.
        WorkerFailed: a process crashed, or took longer than it may.
    """
    known(strategy)
    builder = Builder.of(build)
    taken = Data.of(data, batch_size)
    if steps < 1:
        raise TrainingError(f"steps={steps}; accepted: 1 or more")
    chosen = loops_of(loops)
    resolve(devices)
    if logs is not None:
        folder = Path(logs)
        folder.mkdir(parents=True, exist_ok=True)
        return _train(strategy, builder, taken, steps, chosen, devices, workers, limit_s, folder)
    folder = Path(tempfile.mkdtemp(prefix="harness-distribute-"))
    found = _train(strategy, builder, taken, steps, chosen, devices, workers, limit_s, folder)
    if found.verdict is Verdict.PASS:
        shutil.rmtree(folder, ignore_errors=True)  # what was printed is of use where something is wrong
    return found


def _train(
    strategy: str,
    builder: Builder,
    data: Data,
    steps: int,
    loops: tuple[str, ...],
    devices: str,
    workers: int,
    limit_s: float,
    folder: Path,
) -> Equivalence:
    stored = (folder / f"{strategy}-data.npz").absolute()
    np.savez(stored, x=data.x, y=data.y)
    arguments: dict[str, object] = {
        "module": builder.module,
        "file": builder.file,
        "function": builder.function,
        "data": str(stored),
        "batch_size": data.batch_size,
        "steps": steps,
        "loops": list(loops),
    }
    try:
        if strategy == "multi_worker":
            several = {**arguments, "folder": str(folder.absolute())}
            return Several(several, data, steps, loops, workers, limit_s, folder).equivalent()
        if strategy == "parameter_server":
            return train_asynchronously(arguments, steps, workers, limit_s, folder)
        own = {**arguments, "strategy": strategy, "spec": devices}
        job = Job("harness.distribute.training_process:run", own, limit_s=limit_s + LAST_RESORT_S)
        answer = ask(job, WorkerFiles.create(folder, strategy), limit_s=limit_s)
    finally:
        stored.unlink(missing_ok=True)
    return told(answer)
