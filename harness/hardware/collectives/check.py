"""Collectives over all cards: the values that each card has afterwards, and how fast they get there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.checking.check import Check, CheckContext, CheckOutcome, Level
from harness.checking.tally import Tally
from harness.hardware.collectives.judge import KINDS, bandwidth, judge_collective
from harness.hardware.naming import device_of, is_gpu
from harness.hardware.needs import on_cards
from harness.records import Exercised, Figure, Finding, Verdict

if TYPE_CHECKING:
    from harness.hardware.machine import Machine

#: Elements that each card gives, by level, as float32; made a multiple of the number of cards. The host compares all.
ELEMENTS = {Level.QUICK: (2**14, 2**20), Level.STANDARD: (2**10, 2**16, 2**22), Level.DEEP: (2**10, 2**16, 2**24)}
#: Without a GPU, where everything is copied by the cores that the cards share.
ELEMENTS_CPU = {Level.QUICK: (2**14, 2**18), Level.STANDARD: (2**10, 2**16, 2**20), Level.DEEP: (2**10, 2**16, 2**22)}
#: On a described machine, where NumPy does the work and the time is simulated.
ELEMENTS_DESCRIBED = (2**10, 2**14)
#: Whole numbers up to this have exact sums in float32 over 128 cards.
LARGEST = 2**16
#: Runs after the first one; the fastest counts.
REPEATS = 2


def run(context: CheckContext) -> CheckOutcome:
    """Each kind by each algorithm and size: values, then bandwidth."""
    return on_cards(context, lambda machine: _all(machine, context))


def _all(machine: Machine, context: CheckContext) -> CheckOutcome:
    cards = machine.cards
    if len(cards) < 2:
        reason = "one card: there is nobody to exchange anything with"
        return CheckOutcome(Verdict.SKIP, reason, "ask for two devices or more, such as --devices cpu:2")
    algorithms = machine.algorithms()
    real = (ELEMENTS if any(is_gpu(card) for card in cards) else ELEMENTS_CPU)[context.level]
    sizes = ELEMENTS_DESCRIBED if machine.described else real
    tally, figures = Tally(), list[Figure]()
    for number, elements in enumerate(sizes):
        arrays = _shares(context.seed + number, elements, len(cards))
        runs = itertools.count()
        for kind in KINDS:
            for algorithm in algorithms:
                figures += _one(machine, kind, algorithm, (_turned(arrays, run) for run in runs), tally)
    if not algorithms:
        tally.unproven("the machine has no algorithm for collectives")
    outcome = tally.outcome(
        f"{', '.join(KINDS)} by {', '.join(algorithms)} over {len(cards)} cards: every value is exact",
        _next_step(tally.findings),
    )
    told = [f"{size * 4} bytes from each card" for size in sizes]
    scope = (
        f"algorithms: {', '.join(algorithms) or 'none'}; float32 whole numbers, {', '.join(told)}",
        "bandwidths are measured with the start of the ops, most of a short one; nothing says what they should be",
    )
    return replace(outcome, figures=tuple(figures), scope=scope)


def _one(
    machine: Machine, kind: str, algorithm: str, shares: Iterator[list[NDArray[Any]]], tally: Tally
) -> list[Figure]:
    cards = machine.cards
    fastest: float | None = None
    # The clock of a described machine is exact.
    for again in range(2 if machine.described else REPEATS + 1):
        arrays = next(shares)
        started = machine.clock_s()
        found = machine.collective(kind, algorithm, arrays)
        took = _ops_s(machine, machine.clock_s() - started)
        fastest = took if again and (fastest is None or took < fastest) else fastest
        devices = tuple(device_of(card) for card in cards)
        values = sum(int(each.size) for each in found)
        tally.count(Exercised(programs=1, values=values, ops=len(cards), devices=devices))
        findings = judge_collective(kind, algorithm, cards, arrays, found)
        tally.found(*(each for each in findings if not _known(each, tally.findings)))
    if not fastest:
        return []
    measured = bandwidth(kind, arrays[0].nbytes, len(cards), fastest)
    return [
        Figure(f"{kind} {algorithm} algorithm", measured.algorithm, "GB/s", size_bytes=measured.size_bytes),
        Figure(f"{kind} {algorithm} bus", measured.bus, "GB/s", size_bytes=measured.size_bytes),
    ]


def _turned(arrays: Sequence[NDArray[Any]], run: int) -> list[NDArray[Any]]:
    """The shares of one run: the same numbers at other places, so that what an earlier one left cannot pass for it."""
    return [np.roll(each, run) for each in arrays]


def _ops_s(machine: Machine, whole_s: float) -> float:
    """How long the ops took, of the whole: a machine may know, or else what brings arrays there and back is in it."""
    ops_s: float | None = getattr(machine, "collective_s", None)
    return whole_s if ops_s is None else ops_s


def _known(finding: Finding, found: Sequence[Finding]) -> bool:
    """Whether the same is said already, of another size or repetition."""
    return any((each.where, each.device) == (finding.where, finding.device) for each in found)


def _shares(seed: int, elements: int, cards: int) -> list[NDArray[Any]]:
    """Whole numbers other than 0, other ones on each card, so that a share that is left out is seen and known."""
    random = np.random.default_rng(seed)
    size = -(-elements // cards) * cards
    return [random.integers(1, LARGEST, size).astype(np.float32) for _ in range(cards)]


def _next_step(findings: Sequence[Finding]) -> str:
    named = list(dict.fromkeys(each.device.rpartition("/device:")[2] for each in findings if each.device))
    algorithms = list(dict.fromkeys(each.where.rpartition(" by ")[2] for each in findings))
    who = ", ".join(named) or "all cards"
    if "nccl" in algorithms:
        return (
            "run it with NCCL_DEBUG=INFO, then with NCCL_P2P_DISABLE=1: if it is right then, the copies between cards "
            f"to and from {who} are at fault (check copies)"
        )
    return f"look at the copies to and from {who} (check copies)"


CHECK = Check(
    id="collectives",
    title="collectives over all cards",
    proves="all-reduce, all-gather, reduce-scatter and broadcast give each card the exact values, by every algorithm "
    "that the machine has",
    minimum_devices=1,
    typical_s=3,
    run=run,
    hardware=True,
    one_process=True,
)
