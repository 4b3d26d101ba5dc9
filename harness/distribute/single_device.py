"""The single-device run: its history, and the histories of runs from slightly moved weights and data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.distribute.compare import MOVED_RUNS, is_rounded_otherwise
from harness.distribute.facts import CHANGES, Facts, collect_facts
from harness.distribute.history import History
from harness.distribute.loops import CustomLoop, KerasFit
from harness.distribute.session import Session
from harness.distribute.training import Data
from harness.errors import UsageError
from harness.judgement.tolerance import epsilon_of_name, move
from harness.lazy import tf
from harness.runner.target import Builder

#: By the name that a user gives.
LOOPS: dict[str, type[Session]] = {"custom": CustomLoop, "fit": KerasFit}


@dataclass(frozen=True)
class Experiment:
    """What is to be judged. ``name`` is what messages call the function ``build``."""

    build: Callable[[], object]
    name: str
    data: Data
    steps: int
    loops: tuple[str, ...] = tuple(LOOPS)


@dataclass(frozen=True)
class TrainingArguments:
    """An experiment for another process: the function ``build`` by name, and the file of the data."""

    builder: Builder
    data: str
    batch_size: int
    steps: int
    loops: tuple[str, ...]

    def experiment(self) -> Experiment:
        """Load the function and the data."""
        with np.load(self.data, allow_pickle=False) as stored:
            data = Data(stored["x"], stored["y"], self.batch_size)
        return Experiment(self.builder.load(), str(self.builder), data, self.steps, self.loops)


def check_loops(names: Sequence[str]) -> tuple[str, ...]:
    """Return ``names``. Raise UsageError if there is none, or one is not known."""
    if isinstance(names, str) or not names or any(name not in LOOPS for name in names):
        raise UsageError(
            f"loops={names!r}; accepted: a list or tuple with one or more of {' and '.join(map(repr, LOOPS))}"
        )
    return tuple(names)


def make_session(experiment: Experiment, loop: str, strategy: Any, changes: Sequence[str] = ()) -> Session:
    """Set up a loop over the training. ``strategy``: ``None`` for one device."""
    return LOOPS[loop](
        experiment.build,
        tf.distribute.get_strategy() if strategy is None else strategy,
        experiment.data,
        name=experiment.name,
        changes=[CHANGES[change] for change in changes],
    )


def facts_of(experiment: Experiment) -> Facts:
    """Collect what the training is made of."""
    return collect_facts(make_session(experiment, "custom", None), experiment.data)


class Reference:
    """The training on one device, set up once. ``initial`` are the weights that all runs start from."""

    def __init__(self, experiment: Experiment, loop: str, facts: Facts, changes: Sequence[str] = ()) -> None:
        self.session = make_session(experiment, loop, None, changes)
        self.initial = self.session.initial()
        self.epsilon = epsilon_of_name(facts.coarsest)

    def run(self, data: Data, steps: int) -> tuple[History, list[History]]:
        """Return the history, and those of the same run again, from moved weights and data, and of rows reordered."""
        random = np.random.default_rng(0)
        single = self.session.run(self.initial, data, steps)
        moved = [self.session.run(self.initial, data, steps)]
        for _ in range(MOVED_RUNS - 2):
            x, y = (self._moved(array, random) for array in data.arrays)
            initial = [self._moved(array, random) for array in self.initial]
            moved.append(self.session.run(initial, Data(x, y, data.batch_size), steps))
        # Of a training that knows its rows by their place, this is another one.
        reordered = self.session.run(self.initial, data.reordered(random), steps)
        moved.append(reordered if is_rounded_otherwise(reordered, single) else single)
        return single, moved

    def _moved(self, array: Any, random: np.random.Generator) -> Any:
        return move(array, random, self.epsilon) if array.dtype.kind == "f" else array
