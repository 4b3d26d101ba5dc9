"""Copies between host and cards, and between cards: compared where they arrive, and timed."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations

from harness.hardware.account import Account
from harness.hardware.blame import Trials
from harness.hardware.delivery import judge_delivery
from harness.hardware.finding import HOST_MEMORY, finding
from harness.hardware.machine import HOST, Buffer, Machine, Mismatch, Pattern
from harness.hardware.patterns import STEP, array_mismatch, next_first, words
from harness.hardware.profile_rates import COPIES
from harness.hardware.rates import BOTH_WAYS
from harness.plural import plural
from harness.records import Figure, Quantity

#: How often a copy is timed; the median counts. Times of small copies vary more.
_TIMES_SMALL, _TIMES_LARGE, _LARGE_BYTES = 15, 5, 4 * 2**20
TO_CARD, TO_HOST = "copy host-to-device", "copy device-to-host"
ACROSS, BOTH = "copy device-to-device", BOTH_WAYS
#: A copy that takes less than this is repeated in one call, in seconds: starting one takes some 100 µs.
_WORTH_REPEATING_S = 0.005


def bandwidth(name: str, source: str, target: str, size: int, gbs: float) -> Figure:
    """Return the figure of a copy, in GB/s (1e9 bytes)."""
    return Figure(name, gbs, "GB/s", source, target, size, quantity=Quantity.BANDWIDTH)


@dataclass(slots=True)
class Course:
    """All copies made so far, with what arrived. ``first`` makes each pattern a different one."""

    machine: Machine
    account: Account
    first: int
    timed_once: bool = False
    copies: list[Figure] = field(default_factory=list)
    trials: Trials = field(default_factory=Trials)
    #: The cards whose PCIe links had their full width and speed during copies with the host.
    full_links: set[str] = field(default_factory=set)

    def run(self, sizes: tuple[int, ...]) -> None:
        """Copy every way in each size."""
        labels = [card.label for card in self.machine.cards]
        for size in sizes:
            # Each card sees this pattern for the first time, so nothing older can pass for it.
            sent = self._pattern()
            for label in labels:
                self._with_host(label, size, sent)
            for source in labels:
                for target in labels:
                    if target != source:
                        self._across(source, target, size, sizes[0])
            for one, other in combinations(labels, 2):
                self._both_ways(one, other, size, sizes[0])

    def _pattern(self) -> Pattern:
        self.first = next_first(self.first)
        return Pattern(self.first, STEP)

    def _timed(self, size: int, copy: Callable[[], object]) -> float:
        """Return the median time of a copy, in seconds."""
        times = []
        count = _TIMES_LARGE if size >= _LARGE_BYTES else _TIMES_SMALL
        for _ in range(1 if self.timed_once else count):
            began = self.machine.clock_s()
            copy()
            times.append(self.machine.clock_s() - began)
        return max(statistics.median(times), 1e-9)

    def _one_s(self, size: int, copies: Callable[[int], object], of_smallest: Callable[[int], object]) -> float:
        """Return the median time of one of the copies that ``copies`` makes, in seconds.

        Of large ones, what starting them takes is left out, as copies ``of_smallest`` size show it.
        """
        if size < _LARGE_BYTES:
            return self._timed(size, lambda: copies(1))
        repeats = COPIES if self._timed(size, lambda: copies(1)) < _WORTH_REPEATING_S else 1
        starting, whole = (self._timed(size, partial(each, repeats)) for each in (of_smallest, copies))
        return max(whole - starting, whole / 4) / repeats

    def _with_host(self, label: str, size: int, sent: Pattern) -> None:
        machine = self.machine
        array = words(sent, size // 8)
        self._arrived_with_host(f"{HOST} -> {label}", label, machine.mismatch(machine.put(array, label), sent))
        taken_s = self._timed(size, lambda: machine.put(array, label))
        self.copies.append(bandwidth(TO_CARD, HOST, label, size, size / taken_s / 1e9))
        back = self._pattern()
        made = machine.fill(label, size, back)
        self._arrived_with_host(f"{label} -> {HOST}", label, array_mismatch(machine.fetch(made), back))
        taken_s = self._timed(size, lambda: machine.fetch(made))
        self.copies.append(bandwidth(TO_HOST, label, HOST, size, size / taken_s / 1e9))
        self.account.count(label, values=2 * (size // 8), ops=3)
        seen = machine.reading(label)
        links = (seen.pcie_width, seen.pcie_width_max), (seen.pcie_generation, seen.pcie_generation_max)
        if all(now is not None and most is not None and now >= most for now, most in links):
            self.full_links.add(label)

    def _arrived_with_host(self, way: str, label: str, wrong: Mismatch) -> None:
        if not wrong.count:
            return
        card = self.account.cards[label]
        self.account.found_once(
            finding(
                "corruption",
                card,
                way,
                expected="the data that was sent",
                found=f"{plural(wrong.count, 'wrong word')}, the first is word {wrong.first_word}",
                message=f"copies incorrectly: {plural(wrong.count, 'wrong 64-bit word')} in the copy {way}",
                next_step=f"reseat it, {HOST_MEMORY}, and look for PCIe errors in dmesg"
                if card.is_gpu
                else HOST_MEMORY,
            )
        )

    def _across(self, source: str, target: str, size: int, smallest: int) -> None:
        machine, pattern = self.machine, self._pattern()
        made, small = (machine.fill(source, each, pattern) for each in (size, smallest))
        self._arrived(made, source, target, machine.mismatch(machine.move(made, target), pattern), pattern, size)
        taken_s = self._one_s(size, partial(machine.move, made, target), partial(machine.move, small, target))
        self.copies.append(bandwidth(ACROSS, source, target, size, size / taken_s / 1e9))

    def _both_ways(self, one: str, other: str, size: int, smallest: int) -> None:
        machine = self.machine
        patterns = self._pattern(), self._pattern()
        made = [machine.fill(label, size, pattern) for label, pattern in zip((one, other), patterns, strict=True)]
        moves = [(made[0], other), (made[1], one)]
        there, back = machine.exchange(moves)
        seen = machine.mismatch(there, patterns[0]), machine.mismatch(back, patterns[1])
        del there, back
        self._arrived(made[0], one, other, seen[0], patterns[0], size)
        self._arrived(made[1], other, one, seen[1], patterns[1], size)
        small = [(machine.fill(label, smallest, patterns[0]), to) for label, to in ((one, other), (other, one))]
        taken_s = self._one_s(size, partial(machine.exchange, moves), partial(machine.exchange, small))
        self.copies.append(bandwidth(BOTH, one, other, size, 2 * size / taken_s / 1e9))

    def _arrived(self, sent: Buffer, source: str, target: str, mismatch: Mismatch, pattern: Pattern, size: int) -> None:
        found = judge_delivery(self.machine, sent, source, target, mismatch, pattern, size, self.trials)
        self.account.found_once(found)
        self.account.count(target, source, values=size // 8, ops=3)
