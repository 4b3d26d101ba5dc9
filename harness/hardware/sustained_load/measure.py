"""Multiplies matrices on all cards at once for a while, with their sensors sampled meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from harness.checking.check import Level
from harness.hardware.bits import ChangedBits, changed_bits
from harness.hardware.known_answers import KnownAnswer
from harness.hardware.machine import Buffer, Job, Machine, Operation, Reading, at_once
from harness.records import Card, Series

#: How long the cards work, in seconds.
LOAD_S = {Level.QUICK: 3.0, Level.STANDARD: 20.0, Level.DEEP: 60.0}
#: Target length of a round; there are about 15 in the shortest load.
_ROUND_S = {Level.QUICK: 0.2, Level.STANDARD: 0.5, Level.DEEP: 1.0}
#: Side of the matrices: it doubles until one product takes as long as the last figure, in seconds.
_SMALLEST, _LARGEST, _LONG_ENOUGH_S = 256, 8192, 0.01
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
    answer: KnownAnswer
    arguments: tuple[Buffer, ...]
    during: list[Reading] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    #: How the first wrong result differs.
    wrong: ChangedBits | None = None

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


@cache
def product(side: int, figure: str) -> Operation:
    """Multiply two float32 matrices ``[side, side]``; ``figure`` is the name of the rate in a profile."""

    def multiply(a: Any, b: Any) -> Any:
        import tensorflow as tf

        return tf.linalg.matmul(a, b)

    return Operation(figure, "float32", "float32", multiply, lambda a, b: a @ b, 2.0 * side**3, 12.0 * side**2)


@cache
def _outer(side: int) -> Operation:
    """Make a matrix ``[side, side]`` from a row, on the card."""

    def multiply(a: Any) -> Any:
        import tensorflow as tf

        return tf.expand_dims(a, 1) * tf.expand_dims(a, 0)

    return Operation("outer float32", "float32", "float32", multiply, lambda a: np.multiply.outer(a, a), float(side**2))


def matrices(machine: Machine, label: str, side: int) -> tuple[Buffer, ...]:
    """Make the two factors on a card."""
    row = np.linspace(0.5, 1.5, side, dtype=np.float32)
    made = machine.run(_outer(side), label, [machine.put(row, label)])
    return made, made


def side_for(machine: Machine, label: str, figure: str) -> tuple[int, float]:
    """Return the side of matrices whose product is long enough to be timed and a real load, and its time in seconds."""
    side, before_s = _SMALLEST, math.inf
    while True:
        buffers = matrices(machine, label, side)
        machine.run(product(side, figure), label, buffers)
        times = []
        for _ in range(3):
            began = machine.clock_s()
            machine.run(product(side, figure), label, buffers)
            times.append(max(machine.clock_s() - began, 1e-6))
        taken_s = min(times)
        if (taken_s >= _LONG_ENOUGH_S and taken_s >= _GROWN * before_s) or side >= _LARGEST:
            return side, taken_s
        side, before_s = side * 2, taken_s


def work(
    machine: Machine,
    loads: list[Load],
    operation: Operation,
    one_s: float,
    level: Level,
    count: Callable[..., None],
) -> None:
    """Run products on all cards for the time of the level; ``count`` is :meth:`Account.count`."""
    repeats = max(1, round(_ROUND_S[level] / one_s))
    began = machine.clock_s()

    def sample() -> None:
        for load in loads:
            load.during.append(machine.reading(load.card.label))

    while machine.clock_s() - began < LOAD_S[level]:
        jobs = [Job(operation, load.card.label, load.buffers, repeats) for load in loads]
        for load, ran in zip(loads, at_once(machine, jobs, sample), strict=True):
            load.at_s.append(machine.clock_s() - began)
            load.rates.append(operation.work * repeats / ran.elapsed_s)
            count(load.card.label, ops=repeats)
        for load in loads:
            # A product of integers while the card is hot: what a load does to results is seen at once.
            label = load.card.label
            result = machine.fetch(machine.run(load.answer.operation, label, load.arguments))
            count(label, values=load.answer.expected.size, ops=1)
            load.wrong = load.wrong or changed_bits(result, load.answer.expected) or None
    count(*(load.card.label for load in loads), programs=2)
