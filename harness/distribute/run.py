"""``harness.distribute.equivalent``: a training under a strategy, in processes of its own, against one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import get_type_hints

import numpy as np
from pydantic import TypeAdapter

from harness import session
from harness.devices.request import resolve
from harness.distribute.equivalence import Equivalence
from harness.distribute.multi_worker import train_with_workers
from harness.distribute.parameter_server import train_asynchronously
from harness.distribute.single_device import LOOPS, TrainingArguments, check_loops
from harness.distribute.strategies import IN_ONE_PROCESS, STRATEGIES
from harness.distribute.training import Data
from harness.errors import TrainingError, UnknownStrategy, UsageError
from harness.runner.ask import ask
from harness.runner.job import Job, WorkerFiles
from harness.runner.limits import LAST_RESORT_S, STARTUP_LIMIT_S
from harness.runner.target import Builder
from harness.temporary import temporary_folder

#: The devices of a strategy of one process, unless the caller or the test session names others.
DEFAULT_DEVICES = "cpu:2"


def equivalent(
    strategy: str,
    build: str | Callable[[], object],
    data: object,
    steps: int,
    *,
    batch_size: int = 8,
    devices: str | None = None,
    workers: int = 2,
    loops: Sequence[str] = tuple(LOOPS),
    limit_s: float = STARTUP_LIMIT_S,
    logs: str | Path | None = None,
) -> Equivalence:
    """Train on one device and under a strategy, for ``steps`` steps from the same weights, and compare step by step.

    Compared are the loss, metrics, gradients (custom loop), weights, optimizer slots, and the optimizer's counter;
    replicas must hold the same bits, variables and slots must be where the strategy keeps them, and the ops and
    collectives of a step must use all devices. The bound of each value is measured: how far the single-device run moves
    when its weights and data move by one unit in the last place.

    Args:
        strategy: ``"mirrored"``, ``"central_storage"``, ``"multi_worker"``, ``"parameter_server"``,
            ``"dtensor_data"`` or ``"dtensor_model"``.
        build: a function without arguments at the top level of a module, or ``"FILE.py:FUNCTION"`` or
            ``"module:function"``; it returns a ``Training``. Each process calls it again.
        data: ``(x, y)`` or ``{"x": x, "y": y}``: NumPy arrays ``[rows, ...]`` of any dtype, used in order. The last
            batch of an epoch has the rows that are left.
        steps: how many steps to take; after the last batch the data starts again.
        batch_size: rows of a whole batch, over all replicas.
        devices: the devices of ``mirrored``, ``central_storage`` and DTensor, as ``configure`` takes them; by default
            those of ``pytest --harness-devices``, else ``"cpu:2"``. The other strategies train on one logical CPU in
            each process, and take none.
        workers: how many processes ``multi_worker`` and ``parameter_server`` train with.
        loops: ``"custom"``, a loop of ``strategy.run``, and ``"fit"``, Keras's own.
        limit_s: how long the training may take once its processes have started, in seconds. A hang is a finding, with
            the stacks of each process.
        logs: the folder for the output of the processes; by default a temporary one, which stays only after an error.

    Raises:
        UnknownStrategy: the strategy is not known.
        TrainingError: the data, or what ``build`` returns, cannot be trained with.
        UsageError: ``devices`` is given for a strategy of several processes, or a loop is not known.
        InvalidTarget: ``build`` is not a function that another process can find.
        RefusedByWorker: the function raised, or the devices are unavailable.
        WorkerFailed: a process crashed, or exceeded its time limit.
    """
    if strategy not in STRATEGIES:
        raise UnknownStrategy(strategy, tuple(STRATEGIES))
    builder = Builder.of(build)
    checked = Data.of(data, batch_size)
    if steps < 1:
        raise TrainingError(f"steps={steps}; accepted: 1 or more")
    chosen = check_loops(loops)
    if devices is not None and strategy not in IN_ONE_PROCESS:
        raise UsageError(
            f"devices={devices!r} with strategy {strategy!r}, which trains on one logical CPU in each process; leave "
            "devices= out, and give workers="
        )
    spec = devices or session.devices or DEFAULT_DEVICES
    resolve(spec)
    with temporary_folder("harness-distribute-") if logs is None else nullcontext(Path(logs)) as folder:
        folder.mkdir(parents=True, exist_ok=True)
        stored = (folder / f"{strategy}-data.npz").absolute()
        np.savez(stored, x=checked.x, y=checked.y)
        training = TrainingArguments(builder, str(stored), checked.batch_size, steps, chosen)
        try:
            if strategy == "multi_worker":
                found = train_with_workers(training, checked, workers, limit_s, folder)
            elif strategy == "parameter_server":
                found = train_asynchronously(training, workers, limit_s, folder)
            else:
                arguments: dict[str, object] = {"training": training, "strategy": strategy, "spec": spec}
                job = Job("harness.distribute.one_process:run", arguments, limit_s=limit_s + LAST_RESORT_S)
                found = _parse(ask(job, WorkerFiles.create(folder, strategy), limit_s=limit_s))
        finally:
            stored.unlink(missing_ok=True)
    return session.observed(found)


def _parse(answer: dict[str, object]) -> Equivalence:
    kinds = get_type_hints(Equivalence, localns={"Trace": object, "Proof": object})
    del kinds["traces"], kinds["proof"]  # which stay in the process
    return Equivalence(**{name: TypeAdapter(kind).validate_python(answer[name]) for name, kind in kinds.items()})
