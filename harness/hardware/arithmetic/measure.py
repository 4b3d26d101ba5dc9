"""Times an operation on several cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.checking.check import Level
from harness.hardware.machine import Buffer, Machine, Operation

#: Least length of a round, in seconds, compared with which starting it and reading the clock are negligible.
_ROUND_S = 0.02
#: The most runs in a round, and the fewest and most rounds.
_REPEATS, _ROUNDS, _MOST_ROUNDS = 1000, 5, 20


@dataclass(frozen=True)
class Timed:
    """The time of one run in the fastest round, the runs of all rounds, and the last result."""

    seconds: float
    runs: int
    last: Buffer


def time_operation(
    machine: Machine, operation: Operation, buffers: Mapping[str, Sequence[Buffer]], level: Level
) -> dict[str, Timed]:
    """Time an operation that has run on each card before, by label; cards whose clock did not advance are left out.

    The cards take turns, so that other work on the machine slows all of them, and the fastest round of each counts,
    because other work only makes rounds slower.
    """
    limit_s = {Level.QUICK: 0.2, Level.STANDARD: 0.5, Level.DEEP: 2.0}[level]
    courses = {card: _Course(machine, operation, card, given) for card, given in buffers.items()}
    while not all(each.enough(limit_s) for each in courses.values()):
        for course in courses.values():
            course.go_round()
    return {card: each.timed() for card, each in courses.items() if each.fastest_s is not None}


class _Course:
    def __init__(self, machine: Machine, operation: Operation, card: str, buffers: Sequence[Buffer]) -> None:
        self._machine, self._operation, self._card, self._buffers = machine, operation, card, buffers
        self._repeats, self._rounds, self._runs, self._spent_s = 1, 0, 0, 0.0
        self._last: Buffer = None
        self.fastest_s: float | None = None

    def enough(self, limit_s: float) -> bool:
        """Return whether there were enough rounds; the first one only estimates the time of a run."""
        return self._rounds > _ROUNDS and (self._spent_s >= limit_s or self._rounds > _MOST_ROUNDS)

    def go_round(self) -> None:
        started = self._machine.clock_s()
        self._last = self._machine.run(self._operation, self._card, self._buffers, self._repeats)
        took_s = self._machine.clock_s() - started
        self._rounds, self._runs, self._spent_s = self._rounds + 1, self._runs + self._repeats, self._spent_s + took_s
        once_s = took_s / self._repeats
        if once_s > 0:
            self.fastest_s = once_s if self.fastest_s is None else min(self.fastest_s, once_s)
        if self._rounds == 1:
            self._repeats = max(1, min(_REPEATS, int(_ROUND_S / once_s) + 1)) if once_s > 0 else _REPEATS

    def timed(self) -> Timed:
        assert self.fastest_s is not None
        return Timed(self.fastest_s, self._runs, self._last)
