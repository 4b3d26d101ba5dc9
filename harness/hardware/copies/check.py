"""Copies between host and cards and between cards: right where they arrive, and fast enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.checking.check import Check, CheckContext, Level
from harness.hardware.account import Account, on_machine
from harness.hardware.blame import copying_findings
from harness.hardware.card import on_chip
from harness.hardware.copies.judge import copy_findings
from harness.hardware.copies.measure import ACROSS, BOTH, TO_CARD, TO_HOST, Course
from harness.hardware.delivery import blame_copies
from harness.hardware.machine import Machine
from harness.hardware.profile import profiles_of
from harness.hardware.profile_rates import COPIES
from harness.hardware.rates import judge_rates
from harness.plural import plural
from harness.records import CheckResult, Quantity, RunRecord

_KIB, _MIB = 2**10, 2**20
#: Sizes in bytes: the smallest gives the latency, the largest the bandwidth that is judged.
SIZES = {
    Level.QUICK: (4 * _KIB, _MIB, 64 * _MIB),
    Level.STANDARD: (4 * _KIB, 64 * _KIB, _MIB, 16 * _MIB, 128 * _MIB),
    Level.DEEP: (4 * _KIB, 64 * _KIB, _MIB, 16 * _MIB, 128 * _MIB, 512 * _MIB),
}
#: Where rates say nothing: on software GPUs, and where a quick run copies within the memory of the host.
UNTIMED_SIZES = (4 * _KIB, _MIB)
#: Without a GPU the host's processor does the copying. The largest does not, or barely, fit into its caches.
CPU_SIZES = {
    Level.QUICK: UNTIMED_SIZES,
    Level.STANDARD: (4 * _KIB, 64 * _KIB, _MIB, 16 * _MIB, 64 * _MIB),
    Level.DEEP: (4 * _KIB, 64 * _KIB, _MIB, 16 * _MIB, 128 * _MIB),
}


def run(context: CheckContext) -> CheckResult:
    """Copy every way, in several sizes; compare where it arrives, and judge the bandwidth of the largest."""
    return on_machine(context, lambda machine, account: _check(machine, account, context))


def _check(machine: Machine, account: Account, context: CheckContext) -> str:
    on_gpu = any(card.is_gpu for card in machine.cards)
    wanted = (SIZES if on_gpu else CPU_SIZES)[context.level]
    if any("software GPU" in (card.kind, card.part) for card in machine.cards):
        wanted = min(wanted, UNTIMED_SIZES, key=lambda each: each[-1])
    sizes = _fitting(machine, wanted)
    timed = wanted != UNTIMED_SIZES
    course = Course(machine, account, context.seed, timed_once=not timed)
    course.run(sizes)
    cards = account.cards
    blamed = blame_copies(machine, context.seed, course.trials)
    account.found(*copying_findings(blamed, cards, course.trials.details))
    _judge(course, sizes, context.history, timed=timed)
    count = len(cards)
    account.scope.append(
        f"copies between {plural(count * (count - 1), 'ordered pair')} of devices, and between the host and "
        f"{plural(count, 'device')}, in {plural(len(sizes), 'size')} up to {sizes[-1]:,} bytes"
    )
    if count == 1:
        account.scope.append("one device: no pair to copy between")
    return f"every copy between {plural(count, 'device')} and the host arrived unchanged"


def _fitting(machine: Machine, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes that fit on every card, or else the smallest, so that a full card is named.

    A card needs memory for what is sent, for all copies of one call, in case none is freed early, and for one more.
    """
    free = [each for card in machine.cards if (each := machine.free_bytes(card.label)) is not None]
    most = min(free) // (COPIES + 2) if free else sizes[-1]
    return tuple(size for size in sizes if size <= most) or sizes[:1]


def _judge(course: Course, sizes: tuple[int, ...], history: Sequence[RunRecord], *, timed: bool) -> None:
    account = course.account
    cards = account.cards
    peaks = {
        label: peak
        for label, card in cards.items()
        if not on_chip(card, reading := course.machine.reading(label)) and (peak := reading.pcie_peak_gbs) is not None
    }
    for copy in course.copies:
        size = copy.size_bytes or 0
        if size == sizes[0] and copy.name != BOTH:
            name = copy.name.replace("copy", "latency")
            latency = replace(copy, name=name, value=size / copy.value / 1e3, unit="us", quantity=Quantity.LATENCY)
            account.figures.append(latency)
        elif size != sizes[-1]:
            account.figures.append(copy)
    largest = [copy for copy in course.copies if copy.size_bytes == sizes[-1]]
    judged = judge_rates(
        largest,
        course.machine.cards,
        profiles_of(course.machine.cards) if timed else {},
        history if timed else (),
        peaks=peaks,
        links=course.machine.pair_links(),
        full_links=course.full_links,
    )
    if course.full_links:
        account.scope.append(
            f"copies to and from the host are not judged on {', '.join(sorted(course.full_links))}: the PCIe link has "
            "full width and speed, so pageable memory is the limit"
        )
    account.figures += judged.figures
    account.scope += judged.scope
    for name in (TO_CARD, TO_HOST, ACROSS, BOTH):
        offences = [each for each in judged.offences if each.figure.name == name]
        account.found(*copy_findings(offences, [copy for copy in largest if copy.name == name], cards))


CHECK = Check(
    id="copies",
    title="copies between host and devices",
    proves="copies from the host to each device and back, and between each pair of devices, in one "
    "direction and in both "
    "at once, arrive unchanged, and none is slower than it should be",
    minimum_devices=1,
    typical_s=4,
    run=run,
    hardware=True,
    timed=True,
)
