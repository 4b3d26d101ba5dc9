"""The task of a worker process that trains under a strategy of one process, and judges what came of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from harness.runner.builder import Builder
from harness.runner.messages import Answer, plain
from harness.runner.users_error import users_code

if TYPE_CHECKING:
    from harness.runner.worker import Send


@dataclass(frozen=True)
class Arguments:
    """The task's arguments: the strategy, the device spec, the function that builds the training (module or file, and
    name), the file of the data, rows of a batch, steps, and the loops to run."""

    strategy: str
    spec: str
    module: str
    file: str
    function: str
    data: str
    batch_size: int
    steps: int
    loops: tuple[str, ...]


def run(arguments: dict[str, object], send: Send) -> None:
    """Configure the devices, build the training, run it on one device and under the strategy, and judge."""
    from harness.devices.runtime import configure
    from harness.distribute.batches import Data
    from harness.distribute.examine import examine
    from harness.distribute.reference import Asked

    asked = TypeAdapter(Arguments).validate_python(arguments)
    builder = Builder(asked.module, asked.file, asked.function)
    devices = configure(asked.spec)
    with np.load(asked.data, allow_pickle=False) as stored:
        data = Data(stored["x"], stored["y"], asked.batch_size)
    with users_code(builder.target):
        found = examine(asked.strategy, devices, Asked(builder.load(), str(builder), data, asked.steps, asked.loops))
    # Traces stay here: they hold what the steps returned, and are judged already.
    answer = plain(replace(found, traces={}))
    assert isinstance(answer, dict)
    send(Answer(answer))
