"""Sustained load on all cards at once, with their sensors sampled meanwhile."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from harness.checking.check import Check, CheckContext, CheckOutcome, Level
from harness.hardware.account import Account, is_cpu, on_machine
from harness.hardware.advised import advised
from harness.hardware.at_once import Job, at_once
from harness.hardware.bits import changed_bits
from harness.hardware.expectations import ProfileFor, expecting, shipped_profile
from harness.hardware.known_answers import KnownAnswer, known_answers
from harness.hardware.links import Watched, judge_links, link_figures
from harness.hardware.machine import Buffer, Machine
from harness.hardware.naming import shares_threads
from harness.hardware.operation import Operation
from harness.hardware.sustained_load.judge import judge_drift, judge_expected, judge_spread, too_high
from harness.hardware.sustained_load.sensors import judge_sensors, silent
from harness.hardware.telemetry import Reading
from harness.hardware.tensor_float import may_use
from harness.records import Card, Figure, Series

#: How long the cards work, in seconds.
LOAD_S = {Level.QUICK: 3.0, Level.STANDARD: 20.0, Level.DEEP: 60.0}
#: A round takes about so long, and there are about 15 in the shortest load.
_ROUND_S = {Level.QUICK: 0.2, Level.STANDARD: 0.5, Level.DEEP: 1.0}
#: Side of the matrices: it doubles until one product takes as long as the last figure, in seconds.
_SMALLEST, _LARGEST, _LONG_ENOUGH_S = 256, 8192, 0.01
#: A product of twice the side is eight times the work. If it takes so many times as long, six sevenths of that is work;
#: less, and what is added is starting it on a device of another process, which puts no load on that.
_GROWN = 4
#: Sensors that are shown over time: name, unit and the field of ``Reading``.
_SHOWN = (("temperature", "C", "temperature_c"), ("clock", "MHz", "clock_mhz"), ("power", "W", "power_w"))


@dataclass(slots=True)
class _Load:
    """One card at work: its matrices, and what was seen of it. ``rates`` are in GFLOP/s at ``at_s``."""

    card: Card
    buffers: tuple[Buffer, ...]
    before: Reading
    answer: KnownAnswer
    arguments: tuple[Buffer, ...]
    wrong: bool = False
    seen: list[Reading] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)


def run(context: CheckContext, profile_for: ProfileFor = shipped_profile) -> CheckOutcome:
    """Multiply matrices on all cards for the time of the level, and judge rates and sensors."""
    return on_machine(context, lambda machine, account: _check(machine, account, context, profile_for))


def _check(machine: Machine, account: Account, context: CheckContext, profile_for: ProfileFor) -> str:
    before = {card.label: machine.reading(card.label) for card in machine.cards}
    # Where TensorFlow may use TF32 its products are several times as fast: another figure of the profile.
    setting = machine.software().tf32
    tf32 = all(may_use(card, setting) for card in machine.cards)
    figure = "matmul tfloat32" if tf32 else "matmul float32"
    side, one_s = _side(machine, machine.cards[0].label, figure)
    loads = []
    for index, card in enumerate(machine.cards):
        answer = known_answers(context.seed, index)[0]
        arguments = tuple(machine.put(array, card.label) for array in answer.arrays)
        loads.append(_Load(card, _matrices(machine, card.label, side), before[card.label], answer, arguments))
    _work(machine, loads, product(side, figure), one_s, context.level, account)
    _judge(loads, profile_for, product(side, figure), account)
    length = LOAD_S[context.level]
    account.scope.append(f"{figure} of {side} x {side} on {len(loads)} card(s) at once for {length:.0f} s")
    lowest = min(statistics.median(load.rates) for load in loads)
    return (
        f"{len(loads)} card(s) multiplied matrices for {length:.0f} s, each at {lowest:.0f} GFLOP/s or more; "
        f"{account.scope[0]}"
    )


@cache
def product(side: int, figure: str) -> Operation:
    """The product of two float32 matrices ``[side, side]``, with the name of its figure in a profile."""

    def multiply(a: Any, b: Any) -> Any:
        import tensorflow as tf

        return tf.linalg.matmul(a, b)

    return Operation(figure, "float32", "float32", multiply, lambda a, b: a @ b, 2.0 * side**3, 12.0 * side**2)


@cache
def _outer(side: int) -> Operation:
    """A matrix ``[side, side]`` from a row: what is large is made on the card."""

    def multiply(a: Any) -> Any:
        import tensorflow as tf

        return tf.expand_dims(a, 1) * tf.expand_dims(a, 0)

    return Operation("outer float32", "float32", "float32", multiply, lambda a: np.multiply.outer(a, a), float(side**2))


def _matrices(machine: Machine, label: str, side: int) -> tuple[Buffer, ...]:
    row = np.linspace(0.5, 1.5, side, dtype=np.float32)
    made = machine.run(_outer(side), label, [machine.put(row, label)])
    return made, made


def _side(machine: Machine, label: str, figure: str) -> tuple[int, float]:
    """Matrices whose product takes long enough to be timed and is a load, and how long it takes in seconds."""
    side, before_s = _SMALLEST, math.inf
    while True:
        buffers = _matrices(machine, label, side)
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


def _work(
    machine: Machine, loads: list[_Load], operation: Operation, one_s: float, level: Level, account: Account
) -> None:
    repeats = max(1, round(_ROUND_S[level] / one_s))
    began = machine.clock_s()

    def look() -> None:
        for load in loads:
            load.seen.append(machine.reading(load.card.label))

    while machine.clock_s() - began < LOAD_S[level]:
        jobs = [Job(operation, load.card.label, load.buffers, repeats) for load in loads]
        for load, ran in zip(loads, at_once(machine, jobs, look), strict=True):
            load.at_s.append(machine.clock_s() - began)
            load.rates.append((operation.flop or 0.0) * repeats / ran.elapsed_s / 1e9)
            account.count(load.card.label, ops=repeats)
        for load in loads:
            _answer(machine, load, account)
    account.count(*(load.card.label for load in loads), programs=2)


def _answer(machine: Machine, load: _Load, account: Account) -> None:
    """A product of whole numbers on the card while it is hot: what a load does to results is seen at once."""
    label = load.card.label
    result = machine.fetch(machine.run(load.answer.operation, label, load.arguments))
    changed = changed_bits(result, load.answer.expected)
    account.count(label, values=load.answer.expected.size, ops=1)
    if changed and not load.wrong:
        load.wrong = True
        account.found(
            advised(
                "corruption",
                load.card,
                f"{load.answer.operation.name} under load",
                "the exact result",
                f"{changed.elements} element(s), {changed.bits} bit(s), the first at element {changed.first}",
                f"computes wrong results under load: {changed.elements} element(s) of an exact product differ",
                "take it out of use, and see what the check corruption says of it",
            )
        )


def _judge(loads: list[_Load], profile_for: ProfileFor, operation: Operation, account: Account) -> None:
    cards = {load.card.label: load.card for load in loads}
    on_cpu = all(is_cpu(card) for card in cards.values())
    rates = {load.card.label: statistics.median(load.rates) for load in loads}
    expected = {
        label: None if on_cpu else expecting(profile_for)(card, operation.name) for label, card in cards.items()
    }
    watched = [Watched(load.card, load.before, tuple(load.seen)) for load in loads]
    for load, each in zip(loads, watched, strict=True):
        label = load.card.label
        asked = expected[label]
        figure = Figure(f"sustained {operation.name}", rates[label], "GFLOP/s", label)
        like = [rates[other] for other, card in cards.items() if card.name == load.card.name]
        if asked is not None:
            figure = replace(figure, expected=asked.value, expected_from=f"profile: {asked.source}")
        elif len(like) > 1:
            middle = statistics.median_high(like)
            figure = replace(figure, expected=middle, expected_from="the median of its like on this machine")
        account.figures.append(figure)
        if asked is not None:
            account.found(judge_expected(rates[label], load.card, asked))
        account.figures += link_figures(each)
        account.found(judge_drift(load.rates, load.card, on_cpu=on_cpu))
        account.found_all(judge_links(each, [other for other in watched if other.card.name == load.card.name]))
        account.found_all(judge_sensors(each))
        account.series += _series(load)
    # What is too fast to be true for its profile is no measure for the others.
    true = {each: rate for each, rate in rates.items() if not too_high(rate, expected[each])}
    account.found_all(judge_spread(true, cards, on_cpu=on_cpu))
    quiet = silent(watched)
    if on_cpu:
        shared = all(shares_threads(card) for card in cards.values())
        account.scope.insert(
            0,
            "no sensors of a card on CPUs, which share their threads: the results were judged, the rates are told"
            if shared
            else "no sensors of a card on CPUs: the rates alone were judged",
        )
    elif len(quiet) == len(Reading.__dataclass_fields__) - 1:
        account.scope.insert(0, "no sensors on these cards: the rates alone were judged")
    elif quiet:
        account.scope.insert(0, f"sensors that say nothing here, and were not judged: {', '.join(quiet)}")
    else:
        account.scope.insert(0, "all sensors were read")


def _series(load: _Load) -> list[Series]:
    label = load.card.label
    made = [Series("rate", "GFLOP/s", label, tuple(load.at_s), tuple(load.rates))]
    start = load.seen[0].at_s if load.seen else 0.0
    for name, unit, of in _SHOWN:
        values = tuple(getattr(each, of) for each in load.seen)
        if any(value is not None for value in values):
            made.append(Series(name, unit, label, tuple(each.at_s - start for each in load.seen), values))
    return made


CHECK = Check(
    id="sustained-load",
    title="sensors and rates under load",
    proves="all cards at once keep their rate under sustained load, no card is slower than its like, and no sensor "
    "tells of heat, memory errors, a narrow link or an error of the driver",
    minimum_devices=1,
    typical_s=4,
    run=run,
    hardware=True,
)
