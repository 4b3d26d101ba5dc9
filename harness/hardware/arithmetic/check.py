"""Arithmetic on every card: right within a derived bound, the same bits again and on cards alike, and how fast."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.checking.check import Check, CheckContext, CheckOutcome
from harness.checking.tally import Tally
from harness.hardware.arithmetic.bounds import coarse_as_tf32
from harness.hardware.arithmetic.judge import Ran, judge_alike, judge_alone, next_step
from harness.hardware.arithmetic.tf32_setting import tf32_set
from harness.hardware.arithmetic.timing import time_operation
from harness.hardware.arithmetic.trials import Trial, both_ways, rates_of, tfloat32, values_of
from harness.hardware.expectations import profiles_of
from harness.hardware.kernels import NoKernel, telling_missing_kernels
from harness.hardware.naming import alike, device_of, is_gpu
from harness.hardware.needs import on_cards
from harness.hardware.operations import wide
from harness.hardware.rates import judge_rates
from harness.hardware.tensor_float import TensorFloat, may_use, said
from harness.records import Card, Exercised, Figure

if TYPE_CHECKING:
    from harness.hardware.machine import Buffer, Machine

_GIGA = 1e9


def run(context: CheckContext) -> CheckOutcome:
    """Run each operation on each card, judge what comes out, and how fast it was."""

    def body(machine: Machine) -> CheckOutcome:
        work = _Work(machine, context)
        work.values()
        work.rates()
        return work.outcome()

    return on_cards(context, body)


@dataclass
class _Work:
    machine: Machine
    context: CheckContext
    tally: Tally = field(default_factory=Tally)
    figures: list[Figure] = field(default_factory=list)
    #: Operations without a kernel: by name, the labels of the cards.
    missing: dict[str, list[str]] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    coarse: dict[str, bool] = field(default_factory=dict)
    #: Whether cards alike were compared.
    compared: bool = False

    def __post_init__(self) -> None:
        self.cards = self.machine.cards
        self.setting = self.machine.software().tf32
        # Of a described machine nothing can be switched.
        self.switch = not self.machine.described and any(may_use(card, True) for card in self.cards)

    def values(self) -> None:
        """Every operation on every card, against the true result, against itself, and against cards alike."""
        for number, trial in enumerate(self._ways(values_of(self.context.level, self.machine.described))):
            operands = trial.operands(np.random.default_rng([self.context.seed, number]))
            reference = trial.reference(operands)
            allowed = {each: trial.allowed(operands, reference, each) for each in (False, True)}
            digests: dict[str, str] = {}
            for card in self.cards:
                results = self._twice(trial, operands, card)
                if results is None:
                    continue
                setting = self.setting if trial.tf32 is None else trial.tf32
                if trial.multiplies and trial.operation.dtype == "float32" and setting is self.setting and is_gpu(card):
                    self._saw(card, coarse_as_tf32(wide(results[0]), reference))
                bound = allowed[may_use(card, setting)]
                ran = Ran(trial.operation.name, card, tuple(wide(each) for each in results), results, reference, bound)
                self.tally.found(*judge_alone(ran))
                self._count(card, 2, 2 * reference.size + results[0].size)
                digests[card.label] = _digest(results[0])
            self._compare_cards(trial, digests, reference.size)
            if digests:
                self.names.append(trial.operation.name)

    def rates(self) -> None:
        """The rates of larger operations. Their last result must have the bits of the first.

        A described machine is not asked for results: NumPy would take minutes for what the clock calls milliseconds.
        """
        on_gpu = any(is_gpu(card) for card in self.cards)
        for number, trial in enumerate(self._ways(rates_of(self.context.level, on_gpu))):
            if self.machine.described:
                self._rate(trial, trial.blank())
            else:
                self._rate(trial, trial.operands(np.random.default_rng([self.context.seed, 1000 + number])))

    def outcome(self) -> CheckOutcome:
        """What follows from all of it."""
        judged = judge_rates(self.figures, self.cards, profiles_of(self.cards), self.context.history)
        self.tally.found(*judged.findings)
        tensor_floats = [TensorFloat(card, self.setting, self.coarse.get(card.label)) for card in self.cards]
        scope = [f"operations: {', '.join(self.names) or 'none'}", *said(tensor_floats), *judged.scope]
        scope += [f"no kernel of {name} on {', '.join(cards)}" for name, cards in self.missing.items()]
        if not self.names:
            self.tally.unproven("no operation has a kernel on any card")
        outcome = self.tally.outcome(
            f"{len(self.names)} operations on {len(self.cards)} card(s): within their bounds, the same bits in a "
            f"second run{' and on cards alike' if self.compared else '; there are no cards alike to compare'}",
            next_step(self.tally.findings),
        )
        return replace(outcome, figures=judged.figures, scope=tuple(scope))

    def _ways(self, trials: list[Trial]) -> list[Trial]:
        return both_ways(trials) if self.switch else trials

    def _twice(
        self, trial: Trial, operands: tuple[NDArray[Any], ...], card: Card
    ) -> tuple[NDArray[Any], NDArray[Any]] | None:
        given = self._put(operands, card)
        try:
            with tf32_set(trial.tf32), telling_missing_kernels():
                # The first is kept meanwhile: a second one in its place would be right where a kernel wrote nothing.
                first, second = (self.machine.run(trial.operation, card.label, given) for _ in range(2))
        except NoKernel:
            self.missing.setdefault(trial.operation.name, []).append(card.label)
            return None
        return self.machine.fetch(first), self.machine.fetch(second)

    def _rate(self, trial: Trial, operands: tuple[NDArray[Any], ...]) -> None:
        operation = trial.operation
        buffers: dict[str, list[Buffer]] = {}
        firsts: dict[str, Buffer] = {}
        for card in self.cards:
            given = self._put(operands, card)
            try:
                with tf32_set(trial.tf32), telling_missing_kernels():
                    firsts[card.label] = self.machine.run(operation, card.label, given)
            except NoKernel:
                continue
            buffers[card.label] = given
        with tf32_set(trial.tf32):
            timed = time_operation(self.machine, operation, buffers, self.context.level)
        digests: dict[str, str] = {}
        for card in self.cards:
            if card.label not in buffers:
                continue
            found = timed.get(card.label)
            if found is None:
                self.tally.unproven(f"the clock stood still while {operation.name} ran on {card.label}: no rate")
                continue
            self._count(card, found.runs + 1, 0)
            self.figures.append(_figure(trial, card, found.seconds, self.coarse.get(card.label, False)))
            if not self.machine.described:
                digests[card.label] = self._same_bits(operation.name, card, firsts.pop(card.label), found.last)
        self._compare_cards(trial, digests, 1)

    def _same_bits(self, name: str, card: Card, first: Buffer, last: Buffer) -> str:
        """Compare two results, and give the first one's digest."""
        results = self.machine.fetch(first), self.machine.fetch(last)
        self.tally.found(*judge_alone(Ran(name, card, (), results, None, None)))
        self.tally.count(Exercised(values=int(results[0].size)))
        return _digest(results[0])

    def _put(self, operands: Iterable[NDArray[Any]], card: Card) -> list[Buffer]:
        return [self.machine.put(each, card.label) for each in operands]

    def _compare_cards(self, trial: Trial, digests: dict[str, str], size: int) -> None:
        for group in alike(self.cards).values():
            of_group = [card for card in group if card.label in digests]
            if len(of_group) < 2:
                continue
            self.compared = True
            self.tally.count(Exercised(values=size * (len(of_group) - 1)))
            self.tally.found(*judge_alike(trial.operation.name, of_group, digests, self.tally.findings))

    def _saw(self, card: Card, coarse: bool) -> None:
        self.coarse[card.label] = self.coarse.get(card.label, False) or coarse

    def _count(self, card: Card, ops: int, values: int) -> None:
        self.tally.count(Exercised(programs=1, values=values, ops=ops, devices=(device_of(card),)))


def _figure(trial: Trial, card: Card, seconds: float, coarse: bool) -> Figure:
    operation = trial.operation
    name = operation.name
    if name == "addition float32":
        name = "memory bandwidth"
    elif coarse and trial.multiplies and trial.tf32 is None and operation.dtype == "float32":
        name = tfloat32(name)
    per_second = name.startswith(("matmul", "convolution", "fft"))
    amount = operation.flop if per_second else operation.traffic_bytes
    size = int(operation.traffic_bytes) if operation.traffic_bytes is not None else None
    return Figure(
        name, (amount or 0.0) / seconds / _GIGA, "GFLOP/s" if per_second else "GB/s", card.label, size_bytes=size
    )


def _digest(array: NDArray[Any]) -> str:
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()


CHECK = Check(
    id="arithmetic",
    title="arithmetic of each card",
    proves="products, convolutions, sums, Fourier transforms and sorting are right in each dtype within a derived "
    "bound, have the same bits again and on each card alike, and are as fast as on the cards beside it",
    minimum_devices=1,
    typical_s=4,
    run=run,
    hardware=True,
)
