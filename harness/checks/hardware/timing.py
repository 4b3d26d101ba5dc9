"""How fast a card does an operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.checks.check import Level

if TYPE_CHECKING:
    from harness.machine.machine import Buffer, Machine
    from harness.machine.operation import Operation

#: How long one round lasts at least, in seconds, so that starting it and looking at the clock are nothing beside it.
_ROUND_S = 0.02
#: Runs in a round at most, and rounds at least and at most.
_REPEATS, _ROUNDS, _MOST_ROUNDS = 1000, 3, 20


@dataclass(frozen=True)
class Timed:
    """``seconds`` of one run, in the fastest of the rounds; ``runs`` in all rounds; the last result."""

    seconds: float
    runs: int
    last: Buffer


def time_operation(
    machine: Machine, operation: Operation, card: str, buffers: Sequence[Buffer], level: Level
) -> Timed | None:
    """The time of an operation that has run there before; ``None`` where the clock stood still.

    The fastest round counts: what else runs on a machine only makes rounds slower.
    """
    started = machine.clock_s()
    last = machine.run(operation, card, buffers)
    once = machine.clock_s() - started
    repeats = max(1, min(_REPEATS, int(_ROUND_S / once) + 1)) if once > 0 else _REPEATS
    fastest, runs, spent, rounds = once, 1, once, 0
    limit_s = {Level.QUICK: 0.2, Level.STANDARD: 0.5, Level.DEEP: 2.0}[level]
    while rounds < _ROUNDS or (spent < limit_s and rounds < _MOST_ROUNDS):
        started = machine.clock_s()
        last = machine.run(operation, card, buffers, repeats)
        took = machine.clock_s() - started
        spent, runs, rounds = spent + took, runs + repeats, rounds + 1
        each = took / repeats
        fastest = each if fastest <= 0 else min(fastest, each)
        if spent > 2 * limit_s:
            break
    return Timed(fastest, runs, last) if fastest > 0 else None
