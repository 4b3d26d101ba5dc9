"""Copies between host and cards and from card to card: right where they arrive, and as fast as they should be."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, permutations

from harness.checking.check import Check, CheckContext, CheckOutcome, Level
from harness.hardware.account import Account, is_cpu, on_machine
from harness.hardware.advised import advised
from harness.hardware.blamed import copying_findings
from harness.hardware.copies.judge import Copy, judge_bandwidths
from harness.hardware.delivery import judge_delivery
from harness.hardware.expectations import ProfileFor, expecting, shipped_profile
from harness.hardware.links import pcie_peak_gbs
from harness.hardware.machine import HOST, Buffer, Machine, Mismatch, Pattern
from harness.hardware.majority import Trial, blame_copying
from harness.hardware.naming import shares_threads
from harness.hardware.profile_rates import COPIES
from harness.hardware.words import array_mismatch, words
from harness.records import Figure

_KIB, _MIB = 2**10, 2**20
#: Sizes in bytes: the smallest gives the latency, the largest the bandwidth that is judged.
SIZES = {
    Level.QUICK: (4 * _KIB, _MIB, 16 * _MIB),
    Level.STANDARD: (4 * _KIB, 64 * _KIB, _MIB, 16 * _MIB, 128 * _MIB),
    Level.DEEP: (4 * _KIB, 64 * _KIB, _MIB, 16 * _MIB, 128 * _MIB, 512 * _MIB),
}
#: The host's processor copies less in the same time. The largest is more than its caches hold, or nearly so.
CPU_SIZES = {
    Level.QUICK: (4 * _KIB, _MIB, 32 * _MIB),
    Level.STANDARD: (4 * _KIB, 64 * _KIB, _MIB, 16 * _MIB, 64 * _MIB),
    Level.DEEP: (4 * _KIB, 64 * _KIB, _MIB, 16 * _MIB, 128 * _MIB),
}
#: How often a copy is timed; the median counts. Small ones are over soon, and their times vary more.
_TIMES_SMALL, _TIMES_LARGE, _LARGE_BYTES = 15, 5, 4 * _MIB
_STEP = 0x9E3779B97F4A7C15
TO_CARD, TO_HOST = "copy host-to-device", "copy device-to-host"
ACROSS, BOTH = "copy device-to-device", "copy both ways"


@dataclass(slots=True)
class _Course:
    """What has been measured and seen so far. ``first`` makes each pattern another one."""

    machine: Machine
    account: Account
    first: int
    copies: list[Copy] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    details: dict[str, str] = field(default_factory=dict)

    def pattern(self) -> Pattern:
        """A pattern that has not been used: what an earlier copy left behind cannot pass for it."""
        self.first = (self.first * 6364136223846793005 + 1442695040888963407) % 2**64
        return Pattern(self.first, _STEP)

    def between_cards(self, size: int, copies: Callable[[int], object]) -> float:
        """The median time in seconds of one of the copies that ``copies`` makes, which takes how many."""
        repeats = COPIES if size >= _LARGE_BYTES else 1
        return self.timed(size, lambda: copies(repeats)) / repeats

    def timed(self, size: int, copy: Callable[[], object]) -> float:
        """The median time of a copy in seconds."""
        times = []
        for _ in range(_TIMES_LARGE if size >= _LARGE_BYTES else _TIMES_SMALL):
            began = self.machine.clock_s()
            copy()
            times.append(self.machine.clock_s() - began)
        return max(statistics.median(times), 1e-9)


def run(context: CheckContext, profile_for: ProfileFor = shipped_profile) -> CheckOutcome:
    """Copy every way, in several sizes; compare where it arrives, and judge the bandwidth of the largest."""
    return on_machine(context, lambda machine, account: _check(machine, account, context, profile_for))


def _check(machine: Machine, account: Account, context: CheckContext, profile_for: ProfileFor) -> str:
    course = _Course(machine, account, context.seed)
    on_cpu = all(is_cpu(card) for card in machine.cards)
    sizes = _sizes_with_room(machine, (CPU_SIZES if on_cpu else SIZES)[context.level])
    labels = [card.label for card in machine.cards]
    for size in sizes:
        # Each card sees it for the first time in this size, so that nothing older can pass for it.
        sent = course.pattern()
        for label in labels:
            _with_host(course, label, size, sent)
        for source in labels:
            _to_all(course, source, [label for label in labels if label != source], size)
        for one, other in combinations(labels, 2):
            _both_ways(course, one, other, size)
    cards = {card.label: card for card in machine.cards}
    account.found_all(copying_findings(blame_copying(course.trials), cards, course.details))
    _judge(course, sizes, profile_for, on_cpu)
    pairs = len(list(permutations(labels, 2)))
    account.scope.append(
        f"{pairs} ordered pairs and {len(labels)} cards with the host, {len(sizes)} sizes up to {sizes[-1]} bytes"
    )
    if pairs == 0:
        account.scope.append("one card: there is no pair to copy between")
    return f"every copy between {len(labels)} card(s) and the host arrived as it was sent; see the figures"


def _sizes_with_room(machine: Machine, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Those that every card has room for; the smallest in any case, so that a card without room is named.

    Room is for what is sent, for the copies that one call makes, should none be gone before the last has come, and for
    one more.
    """
    free = [each for card in machine.cards if (each := machine.free_bytes(card.label)) is not None]
    most = min(free) // (COPIES + 2) if free else sizes[-1]
    return tuple(size for size in sizes if size <= most) or sizes[:1]


def _with_host(course: _Course, label: str, size: int, sent: Pattern) -> None:
    machine = course.machine
    array = words(sent, size // 8)
    _host_seen(course, f"{HOST} -> {label}", label, machine.mismatch(machine.put(array, label), sent))
    course.copies.append(_copy(TO_CARD, HOST, label, size, course.timed(size, lambda: machine.put(array, label))))
    back = course.pattern()
    made = machine.fill(label, size, back)
    _host_seen(course, f"{label} -> {HOST}", label, array_mismatch(machine.fetch(made), back))
    course.copies.append(_copy(TO_HOST, label, HOST, size, course.timed(size, lambda: machine.fetch(made))))
    course.account.count(label, values=2 * (size // 8), ops=3)


def _host_seen(course: _Course, way: str, label: str, wrong: Mismatch) -> None:
    if not wrong.count:
        return
    card = next(card for card in course.machine.cards if card.label == label)
    course.account.found_once(
        advised(
            "corruption",
            card,
            way,
            "what was sent",
            f"{wrong.count} words differ, the first is word {wrong.first_word}",
            f"gets wrong data in the copy {way}: {wrong.count} 64-bit words differ",
            "reseat the card, and look at the host's memory (ECC, memtest) and at PCIe errors in dmesg",
        )
    )


def _to_all(course: _Course, source: str, targets: list[str], size: int) -> None:
    machine = course.machine
    for target in targets:
        pattern = course.pattern()
        made = machine.fill(source, size, pattern)
        _pair_seen(course, made, source, target, machine.mismatch(machine.move(made, target), pattern), pattern, size)
        taken_s = course.between_cards(size, partial(machine.move, made, target))
        course.copies.append(_copy(ACROSS, source, target, size, taken_s))


def _both_ways(course: _Course, one: str, other: str, size: int) -> None:
    machine = course.machine
    patterns = course.pattern(), course.pattern()
    made = [machine.fill(label, size, pattern) for label, pattern in zip((one, other), patterns, strict=True)]
    moves = [(made[0], other), (made[1], one)]
    there, back = machine.exchange(moves)
    seen = machine.mismatch(there, patterns[0]), machine.mismatch(back, patterns[1])
    del there, back
    _pair_seen(course, made[0], one, other, seen[0], patterns[0], size)
    _pair_seen(course, made[1], other, one, seen[1], patterns[1], size)
    taken_s = course.between_cards(size, partial(machine.exchange, moves))
    course.copies.append(Copy(BOTH, one, other, size, 2 * size / taken_s / 1e9))


def _pair_seen(
    course: _Course, sent: Buffer, source: str, target: str, mismatch: Mismatch, pattern: Pattern, size: int
) -> None:
    cards = {card.label: card for card in course.machine.cards}
    seen = judge_delivery(course.machine, cards, sent, source, target, mismatch, pattern, size)
    course.trials.append(Trial(target, seen.wrong, source=source))
    if seen.wrong:
        course.details.setdefault(f"{source} -> {target}", seen.text(size // 8))
    course.account.found_once(seen.memory)
    course.account.count(target, source, values=size // 8, ops=3)


def _copy(name: str, source: str, target: str, size: int, taken_s: float) -> Copy:
    return Copy(name, source, target, size, size / taken_s / 1e9)


def _judge(course: _Course, sizes: tuple[int, ...], profile_for: ProfileFor, on_cpu: bool) -> None:
    account = course.account
    cards = {card.label: card for card in course.machine.cards}
    peaks = {label: pcie_peak_gbs(course.machine.reading(label)) for label in cards}
    known = {label: peak for label, peak in peaks.items() if peak is not None}
    for name in (TO_CARD, TO_HOST, ACROSS, BOTH):
        mine = [copy for copy in course.copies if copy.name == name]
        for copy in mine:
            if copy.size_bytes == sizes[0] and name != BOTH:
                latency = copy.size_bytes / copy.gbs / 1e3
                account.figures.append(
                    Figure(name.replace("copy", "latency"), latency, "us", copy.source, copy.target, copy.size_bytes)
                )
            elif copy.size_bytes != sizes[-1]:
                account.figures.append(Figure(name, copy.gbs, "GB/s", copy.source, copy.target, copy.size_bytes))
        largest = [copy for copy in mine if copy.size_bytes == sizes[-1]]
        figures, wrong = judge_bandwidths(largest, cards, expecting(profile_for), known, on_cpu=on_cpu)
        account.figures += figures
        account.found_all(wrong)
    if on_cpu:
        account.scope.append(
            "logical CPUs share the host's memory and their threads: their bandwidths are told and not judged"
            if all(shares_threads(card) for card in cards.values())
            else "CPU cores share the host's memory: their bandwidths are told, and only a card far below judged"
        )
    elif not any(profile_for(card) for card in cards.values()):
        account.scope.append(
            "no profile of these cards: bandwidths are judged against the median of their like on this machine"
            if len(cards) > 1
            else "no profile of this card and no other card: its bandwidths are judged against its link alone"
        )


CHECK = Check(
    id="copies",
    title="copies between host and cards",
    proves="what is copied from the host to a card, back, and from each card to each other one, one way and both at "
    "once, arrives unchanged, and no card or pair is slower than it should be",
    minimum_devices=1,
    typical_s=4,
    run=run,
    hardware=True,
)
