"""The training on one device: its course, and its courses from weights and data that are moved a little."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.distribute.batches import Data
from harness.distribute.course import Course
from harness.distribute.custom_loop import CustomLoop
from harness.distribute.differences import MOVED_RUNS
from harness.distribute.facts import CHANGES, Facts, facts_of
from harness.distribute.keras_fit import KerasFit
from harness.distribute.session import Session
from harness.errors import UsageError
from harness.judgement.tolerance import epsilon_of_name, move

#: By the name that a user gives.
LOOPS: dict[str, type[Session]] = {"custom": CustomLoop, "fit": KerasFit}


@dataclass(frozen=True)
class Asked:
    """What is to be judged. ``name`` is what messages call the function ``build``."""

    build: Callable[[], object]
    name: str
    data: Data
    steps: int
    loops: tuple[str, ...] = tuple(LOOPS)


def loops_of(names: Sequence[str]) -> tuple[str, ...]:
    """``names``, if they are loops.

    Raises:
        UsageError: there is none, or one is not known.
    """
    if isinstance(names, str) or not names or any(name not in LOOPS for name in names):
        raise UsageError(f"loops={names!r}; accepted: a sequence of {', '.join(LOOPS)}, at least one")
    return tuple(names)


def make_session(asked: Asked, loop: str, strategy: Any, data: Data, changes: Sequence[str] = ()) -> Session:
    """A loop over the training. ``strategy``: ``None`` for one device."""
    import tensorflow as tf

    return LOOPS[loop](
        asked.build,
        tf.distribute.get_strategy() if strategy is None else strategy,
        data,
        name=asked.name,
        changes=[CHANGES[change] for change in changes],
    )


def look_at(asked: Asked) -> Facts:
    """What the training is made of."""
    looker = make_session(asked, "custom", None, asked.data)
    assert isinstance(looker, CustomLoop)
    return facts_of(looker, asked.data)


class Reference:
    """The training on one device, set up once. ``initial`` is what all runs begin with."""

    def __init__(self, asked: Asked, loop: str, facts: Facts, changes: Sequence[str] = ()) -> None:
        self.session = make_session(asked, loop, None, asked.data, changes)
        self.initial = self.session.initial()
        self.epsilon = epsilon_of_name(facts.coarsest)

    def courses(self, data: Data, steps: int) -> tuple[Course, list[Course]]:
        """The course, and those from moved weights and data."""
        random = np.random.default_rng(0)
        single = self.session.run(self.initial, data, steps)
        moved = []
        for _ in range(MOVED_RUNS):
            x, y = (self._moved(array, random) for array in data.arrays)
            initial = [self._moved(array, random) for array in self.initial]
            moved.append(self.session.run(initial, Data(x, y, data.batch_size), steps))
        return single, moved

    def _moved(self, array: Any, random: np.random.Generator) -> Any:
        return move(array, random, self.epsilon) if array.dtype.kind == "f" else array
