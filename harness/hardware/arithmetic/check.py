"""Arithmetic on every card: right within a derived bound, the same bits again and on cards alike, and how fast."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.checking.check import Check, CheckContext, Level
from harness.hardware.account import Account, on_machine
from harness.hardware.arithmetic.bounds import coarse_as_tf32
from harness.hardware.arithmetic.judge import Ran, judge_alike, judge_card
from harness.hardware.arithmetic.measure import Timed, time_operation
from harness.hardware.arithmetic.trials import Trial, both_ways, rates_of, tfloat32, values_of
from harness.hardware.card import alike
from harness.hardware.machine import Buffer, DeviceMemoryFull, Machine
from harness.hardware.operations import NoKernel, raising_no_kernel, wide
from harness.hardware.profile import profiles_of
from harness.hardware.rates import judge_rates, rate_finding
from harness.hardware.tensor_float import describe_tf32, may_use, tf32_set
from harness.plural import plural
from harness.records import Card, CheckResult, Figure, Quantity


def run(context: CheckContext) -> CheckResult:
    """Run each operation on each card, and judge the results and the rates."""
    return on_machine(context, lambda machine, account: _Course(machine, account, context).run())


class _Course:
    def __init__(self, machine: Machine, account: Account, context: CheckContext) -> None:
        self.machine, self.account, self.context = machine, account, context
        self.cards = machine.cards
        self.setting = machine.software().tf32
        #: Whether TF32 can be switched.
        self.switch = any(may_use(card, True) for card in self.cards)
        self.figures: list[Figure] = []
        #: Labels of the cards without a kernel, by operation.
        self.missing: dict[str, list[str]] = {}
        self.names: list[str] = []
        #: Labels of the cards that lacked memory.
        self.full: set[str] = set()
        #: Whether float32 products were as coarse as TF32, by label.
        self.coarse: dict[str, bool] = {}
        self.compared = False

    def run(self) -> str:
        self._judge_values()
        self._measure_rates()
        account = self.account
        judged = judge_rates(self.figures, self.cards, profiles_of(self.cards), self.context.history)
        account.found(*map(rate_finding, judged.offences))
        account.figures += judged.figures
        account.scope.append(f"operations: {', '.join(self.names) or 'none'}")
        account.scope += describe_tf32(self.cards, self.setting, self.coarse)
        account.scope += judged.scope
        account.scope += [f"no kernel for {name} on {', '.join(labels)}" for name, labels in self.missing.items()]
        if not self.names:
            step = "run this check with --level standard, or on devices that have kernels for its operations"
            account.unproven("no operation has a kernel on any device", step)
        across = " and across devices of one model" if self.compared else "; no two devices of one model to compare"
        return (
            f"{len(self.names)} operations on {plural(len(self.cards), 'device')}: within rounding bounds, "
            f"bit-identical when repeated{across}"
        )

    def _judge_values(self) -> None:
        for number, trial in enumerate(self._variants(values_of(self.context.level))):
            operands = trial.operands(np.random.default_rng([self.context.seed, number]))
            reference = trial.reference(operands)
            allowed = {each: trial.allowed(operands, reference, each) for each in (False, True)}
            digests: dict[str, str] = {}
            name = trial.operation.name
            for card in self.cards:
                results = self._run_twice(trial, operands, card)
                if results is None:
                    continue
                setting = self.setting if trial.tf32 is None else trial.tf32
                if trial.multiplies and trial.operation.dtype == "float32" and setting is self.setting and card.is_gpu:
                    coarse = coarse_as_tf32(wide(results[0]), reference)
                    self.coarse[card.label] = self.coarse.get(card.label, False) or coarse
                bound = allowed[may_use(card, setting)]
                self.account.found(*judge_card(Ran(name, card, results, reference, bound)))
                self.account.count(card.label, programs=1, ops=2, values=2 * reference.size + results[0].size)
                digests[card.label] = _digest(results[0])
            self._compare_cards(trial, digests, reference.size)
            if digests:
                self.names.append(name)

    def _measure_rates(self) -> None:
        """Time larger operations. Their last result must have the bits of the first.

        At the level ``quick`` not where the devices share the threads of this process: such rates say nothing, but
        where they are compared with earlier ones.
        """
        context = self.context
        if context.level is Level.QUICK and not context.history and all(card.shares_threads for card in self.cards):
            return
        on_gpu = not all(card.on_host for card in self.cards)
        room = max((each for card in self.cards if (each := self.machine.free_bytes(card.label))), default=None)
        for number, trial in enumerate(self._variants(rates_of(self.context.level, on_gpu, room))):
            random = np.random.default_rng([self.context.seed, 1000 + number])
            self._measure_rate(trial, trial.operands(random))

    def _variants(self, trials: list[Trial]) -> list[Trial]:
        return both_ways(trials) if self.switch else trials

    def _run_twice(
        self, trial: Trial, operands: tuple[NDArray[Any], ...], card: Card
    ) -> tuple[NDArray[Any], NDArray[Any]] | None:
        try:
            given = self._put(operands, card)
            with tf32_set(trial.tf32), raising_no_kernel():
                # The first result is kept: a second one in its place would be right even if a kernel wrote nothing.
                first, second = (self.machine.run(trial.operation, card.label, given) for _ in range(2))
        except NoKernel:
            self.missing.setdefault(trial.operation.name, []).append(card.label)
            return None
        except DeviceMemoryFull as full:
            self._lacks_memory(card, full)
            return None
        return self.machine.fetch(first), self.machine.fetch(second)

    def _measure_rate(self, trial: Trial, operands: tuple[NDArray[Any], ...]) -> None:
        name = trial.operation.name
        buffers: dict[str, list[Buffer]] = {}
        firsts: dict[str, Buffer] = {}
        for card in self.cards:
            if card.label in self.full:
                continue
            try:
                given = self._put(operands, card)
                with tf32_set(trial.tf32), raising_no_kernel():
                    firsts[card.label] = self.machine.run(trial.operation, card.label, given)
            except NoKernel:
                continue
            except DeviceMemoryFull as full:
                self._lacks_memory(card, full)
                continue
            buffers[card.label] = given
        timed = self._timed(trial, buffers)
        digests: dict[str, str] = {}
        for card in (card for card in self.cards if card.label in buffers):
            found = timed.get(card.label)
            if found is None:
                self.account.unproven(
                    f"the clock did not advance while {name} ran on {card.label}, so the rate is unknown",
                    "check that the host's clock runs",
                )
                continue
            self.account.count(card.label, programs=1, ops=found.runs + 1)
            self.figures.append(self._figure(trial, card, found.seconds))
            results = self.machine.fetch(firsts.pop(card.label)), self.machine.fetch(found.last)
            self.account.found(*judge_card(Ran(name, card, results)))
            self.account.count(values=int(results[0].size))
            digests[card.label] = _digest(results[0])
        self._compare_cards(trial, digests, 1)

    def _timed(self, trial: Trial, buffers: dict[str, list[Buffer]]) -> dict[str, Timed]:
        """Time the operation on each card; ``buffers`` loses those of a card that lacks memory."""
        while True:
            try:
                with tf32_set(trial.tf32):
                    return time_operation(self.machine, trial.operation, buffers, self.context.level)
            except DeviceMemoryFull as full:
                if buffers.pop(full.device, None) is None:
                    raise
                self._lacks_memory(self.account.cards[full.device], full)

    def _lacks_memory(self, card: Card, full: DeviceMemoryFull) -> None:
        """Report a card, and measure no rates there: TensorFlow waits for 10 s before it refuses memory."""
        self.full.add(card.label)
        self.account.add_full(card, full)

    def _figure(self, trial: Trial, card: Card, seconds: float) -> Figure:
        operation = trial.operation
        name = trial.figure or operation.name
        coarse = trial.tf32 is None and self.coarse.get(card.label, False)
        if coarse and trial.multiplies and operation.dtype == "float32":
            name = tfloat32(name)
        size = int(operation.traffic_bytes) if operation.traffic_bytes is not None else None
        rate = operation.work / seconds
        return Figure(name, rate, operation.unit, card.label, size_bytes=size, quantity=Quantity.RATE)

    def _put(self, operands: Iterable[NDArray[Any]], card: Card) -> list[Buffer]:
        return [self.machine.put(each, card.label) for each in operands]

    def _compare_cards(self, trial: Trial, digests: dict[str, str], size: int) -> None:
        for group in alike(self.cards):
            of_group = [card for card in group if card.label in digests]
            if len(of_group) < 2:
                continue
            self.compared = True
            self.account.count(values=size * (len(of_group) - 1))
            self.account.found(*judge_alike(trial.operation.name, of_group, digests, self.account.findings))


def _digest(array: NDArray[Any]) -> str:
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()


CHECK = Check(
    id="arithmetic",
    title="arithmetic of each device",
    proves="products, convolutions, sums, Fourier transforms and sorting are within a derived bound in each dtype, "
    "give the same bits when repeated and on all devices of one model, and are as fast as on the other devices",
    minimum_devices=1,
    typical_s=3,
    run=run,
    hardware=True,
    timed=True,
)
