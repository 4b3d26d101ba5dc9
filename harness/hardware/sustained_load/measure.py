"""Multiplies matrices on all cards at once for a while, with their sensors sampled meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np

from harness.checking.check import Level
from harness.hardware.blame import Trial
from harness.hardware.machine import Buffer, Job, Machine, Operation, Reading
from harness.hardware.profile_rates import times_s
from harness.lazy import tf
from harness.records import Card, Series

#: How long the cards work, in seconds.
LOAD_S = {Level.QUICK: 3.0, Level.STANDARD: 20.0, Level.DEEP: 60.0}
#: At the level ``quick`` where all devices share the threads of this process: they have no sensors, and such rates say
#: nothing.
SHARED_LOAD_S = 1.0
#: Target length of a round; there are about 15 in the shortest load.
_ROUND_S = {Level.QUICK: 0.2, Level.STANDARD: 0.5, Level.DEEP: 1.0}
#: Side of the matrices: it doubles until one product takes as long as the last figure, in seconds.
_SMALLEST, _LARGEST, _LONG_ENOUGH_S = 256, 8192, 0.01
#: Bytes held for each element of a matrix: the matrix, its square, a product, and as much again while one is made.
_HELD_BYTES = 4 * 6
#: A product of twice the side is eight times the work. If it takes less than this many times as long, most of the time
#: is spent starting it on a device of another process, which is no load.
_GROWN = 4
#: Sensors that are shown over time: name, unit and the field of ``Reading``.
_SHOWN = (("temperature", "C", "temperature_c"), ("clock", "MHz", "clock_mhz"), ("power", "W", "power_w"))


@dataclass(slots=True)
class Load:
    """One card at work: its matrices, and what was measured. ``rates`` are in GFLOP/s at ``at_s``."""

    card: Card
    buffers: tuple[Buffer, ...]
    before: Reading
    during: list[Reading] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    @property
    def readings(self) -> tuple[Reading, ...]:
        """All readings, the one before the load first."""
        return (self.before, *self.during)

    def known(self, sensor: str, *, before: bool = False) -> list[Any]:
        """Return what a sensor reported under load, and also before it if asked."""
        readings = self.readings if before else self.during
        return [value for each in readings if (value := getattr(each, sensor)) is not None]

    def series(self) -> list[Series]:
        """Return the rate and the sensors over time."""
        label = self.card.label
        made = [Series("rate", "GFLOP/s", label, tuple(self.at_s), tuple(self.rates))]
        start = self.during[0].at_s if self.during else 0.0
        for name, unit, sensor in _SHOWN:
            if self.known(sensor):
                values = tuple(getattr(each, sensor) for each in self.during)
                made.append(Series(name, unit, label, tuple(each.at_s - start for each in self.during), values))
        return made


def load_s(level: Level, cards: Sequence[Card]) -> float:
    """Return how long the cards work, in seconds."""
    shared = level is Level.QUICK and all(card.shares_threads for card in cards)
    return min(LOAD_S[level], SHARED_LOAD_S) if shared else LOAD_S[level]


@cache
def product(side: int, figure: str) -> Operation:
    """Square a float32 matrix ``[side, side]``, and compare each element of the result on the card: bool ``[1]``.

    ``figure`` is the name of the rate in a profile. The arguments are the matrix, its exact square, and whether an
    earlier result was wrong. Comparing takes a few hundredths of the time of a large product.
    """

    def square(a: Any, exact: Any, wrong: Any) -> Any:
        differs = tf.reduce_any(tf.not_equal(tf.linalg.matmul(a, a), exact))
        return tf.logical_or(wrong, tf.reshape(differs, [1]))

    def reference(a: Any, exact: Any, wrong: Any) -> Any:
        return wrong | np.any(a @ a != exact, keepdims=True).reshape(1)

    return Operation(figure, "float32", "bool", square, reference, 2.0 * side**3, chained=True)


@cache
def _outer(side: int) -> Operation:
    """Make a matrix ``[side, side]`` from a column and a row, on the card."""

    def multiply(a: Any, b: Any) -> Any:
        return tf.expand_dims(a, 1) * tf.expand_dims(b, 0)

    return Operation("outer float32", "float32", "float32", multiply, np.multiply.outer, float(side**2))


def matrices(machine: Machine, label: str, side: int) -> tuple[Buffer, ...]:
    """Make on a card a matrix of integers, its exact square, and a False.

    The matrix is ``u v^T``, so its square is ``(u . v) u v^T``. No sum on the way exceeds 8,192 x 42**2, which is less
    than 2**24, and no element has more bits than TF32: every order of summation gives the same bits.
    """
    random = np.random.default_rng(side)
    column, row = (
        (random.integers(1, most + 1, side) * random.choice([-1, 1], side)).astype(np.float32) for most in (6, 7)
    )
    scale = float(column @ row)
    made = [
        machine.run(_outer(side), label, [machine.put(each, label), machine.put(row, label)])
        for each in (column, np.float32(scale) * column)
    ]
    return (*made, machine.put(np.zeros(1, bool), label))


def side_that_fits(machine: Machine) -> int:
    """Return the largest side of matrices of which every card has room for all that the load holds."""
    free = [each for card in machine.cards if (each := machine.free_bytes(card.label)) is not None]
    return max(_SMALLEST, min(_LARGEST, math.isqrt(min(free) // _HELD_BYTES))) if free else _LARGEST


def side_for(machine: Machine, label: str, figure: str, largest: int = _LARGEST) -> tuple[int, float]:
    """Return the side of matrices whose product is long enough to be timed and a real load, and its time in seconds.

    It is at most ``largest``, whatever the time.
    """
    side, before_s = _SMALLEST, math.inf
    while True:
        buffers = matrices(machine, label, side)
        run = partial(machine.run, product(side, figure), label, buffers)
        taken_s = max(min(times_s(machine, run, 3)), 1e-6)
        if (taken_s >= _LONG_ENOUGH_S and taken_s >= _GROWN * before_s) or 2 * side > largest:
            return side, taken_s
        side, before_s = side * 2, taken_s


def work(
    machine: Machine,
    loads: list[Load],
    operation: Operation,
    side: int,
    one_s: float,
    level: Level,
    count: Callable[..., None],
) -> list[Trial]:
    """Run products on all cards for the time of the level, and return whether those of each round were right.

    ``count`` is :meth:`Account.count`.
    """
    repeats = max(1, round(_ROUND_S[level] / one_s))
    began = machine.clock_s()

    def sample() -> None:
        for load in loads:
            load.during.append(machine.reading(load.card.label))

    trials: list[Trial] = []
    length_s = load_s(level, [load.card for load in loads])
    while not trials or machine.clock_s() - began < length_s:
        # The cards take turns at each index, so that a wrong index is not taken for a wrong card.
        turn = len(trials) // len(loads) % len(loads)
        order = [*loads[turn:], *loads[:turn]]
        jobs = [Job(operation, load.card.label, load.buffers, repeats) for load in order]
        for index, (load, ran) in enumerate(zip(order, machine.at_once(jobs, sample), strict=True)):
            load.at_s.append(machine.clock_s() - began)
            load.rates.append(operation.work * repeats / ran.elapsed_s)
            trials.append(Trial(load.card.label, bool(machine.fetch(ran.result)[0]), index, program=operation.name))
            count(load.card.label, values=repeats * side**2, ops=repeats)
    count(*(load.card.label for load in loads), programs=1)
    return trials
