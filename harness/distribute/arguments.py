"""What the tasks of worker processes are to train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.distribute.training import Data
from harness.runner.target import Builder

if TYPE_CHECKING:
    from harness.distribute.single_device import Experiment


@dataclass(frozen=True)
class TrainingArguments:
    """What to train: the function ``build``, the file of the data, and the rest as ``equivalent`` takes it."""

    builder: Builder
    data: str
    batch_size: int
    steps: int
    loops: tuple[str, ...]

    def experiment(self) -> Experiment:
        """Load the function and the data."""
        from harness.distribute.single_device import Experiment

        with np.load(self.data, allow_pickle=False) as stored:
            data = Data(stored["x"], stored["y"], self.batch_size)
        return Experiment(self.builder.load(), str(self.builder), data, self.steps, self.loops)
