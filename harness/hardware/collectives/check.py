"""Collectives over all cards: the values that each card holds afterwards, and the bandwidth."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.checking.check import Check, CheckContext, CheckOutcome, Driver, Level
from harness.hardware.account import Account, on_machine
from harness.hardware.blame import Trials, copying_findings
from harness.hardware.collectives.judge import (
    KINDS,
    LEAST_S,
    ON_ALL,
    bandwidth,
    common_gbs,
    judge_bandwidth,
    judge_collective,
)
from harness.hardware.corruption.measure import blame_copies, copy
from harness.hardware.finding import amount, finding
from harness.hardware.machine import Machine, NoLibrary
from harness.records import Figure, Finding, Quantity, Verdict

#: Elements that each card contributes, by level, as float32; rounded up to a multiple of the number of cards.
ELEMENTS = {Level.QUICK: (2**14, 2**20), Level.STANDARD: (2**10, 2**16, 2**22), Level.DEEP: (2**10, 2**16, 2**24)}
#: Without a GPU everything is copied by the cores that the devices share.
ELEMENTS_CPU = {Level.QUICK: (2**14, 2**18), Level.STANDARD: (2**10, 2**16, 2**20), Level.DEEP: (2**10, 2**16, 2**22)}
#: Sums of integers up to this are exact in float32 over 128 cards.
LARGEST = 2**16
#: Runs after the first one; the fastest counts.
REPEATS = 2


def run(context: CheckContext) -> CheckOutcome:
    """Run each kind with each algorithm and size; compare the values and measure the bandwidth."""
    if context.machine is not None and len(context.machine.cards) == 1:
        step = "select two devices or more, such as --devices cpu:2"
        return CheckOutcome(Verdict.SKIP, "one device: nothing to exchange", step)
    return on_machine(context, lambda machine, account: _check(machine, account, context))


def _check(machine: Machine, account: Account, context: CheckContext) -> str:
    cards = machine.cards
    algorithms = machine.algorithms()
    sizes = (ELEMENTS if not all(card.on_host for card in cards) else ELEMENTS_CPU)[context.level]
    broken: set[str] = set()
    start_s: dict[str, float] = {}
    expected_gbs = common_gbs(machine.pair_links(), cards)
    for number, elements in enumerate(sizes):
        arrays = _shares(context.seed + number, elements, len(cards))
        runs = itertools.count()
        for kind in KINDS:
            for algorithm in algorithms:
                if algorithm in broken:
                    continue
                try:
                    taken_s = _measure(machine, kind, algorithm, (_rotated(arrays, run) for run in runs), account)
                except NoLibrary as error:
                    broken.add(algorithm)
                    account.add(_no_library(error, f"{kind} by {algorithm}"))
                    continue
                if taken_s is not None and algorithm == "nccl" and expected_gbs is not None:
                    # What starting the ops takes is left out, as the smallest collective shows it.
                    start_s.setdefault(kind, taken_s)
                    course_s = taken_s - start_s[kind]
                    account.add(judge_bandwidth(kind, arrays[0].nbytes, len(cards), course_s, expected_gbs))
    if any(each.kind == "corruption" for each in account.findings):
        account.findings = _without_shares(account.findings)
        _blame_copies(machine, account, context)
    if not algorithms:
        account.unproven(
            "no algorithm for collectives works across these devices",
            "select devices of one process: --devices gpu or cpu:N",
        )
    shares = " and ".join(f"{size * 4:,} bytes" for size in sizes)
    account.scope += [
        f"algorithms: {', '.join(algorithms) or 'none'}; each device contributed {shares} of whole numbers in float32",
        *(
            ["hierarchical-copy was not tested: in TensorFlow it gives wrong sums on an odd number of GPUs"]
            if algorithms and "hierarchical-copy" not in algorithms
            else []
        ),
        "bandwidths include the time to start the ops, which dominates for small tensors",
        "bandwidths are not judged: not all GPUs are joined by NVLinks of a known rate"
        if expected_gbs is None
        else f"NCCL's bandwidth is judged only for tensors that take {LEAST_S * 1000:g} ms or more over the NVLinks "
        f"({amount(expected_gbs, 'GB/s')} one way)",
    ]
    return f"{', '.join(KINDS)} by {', '.join(algorithms)} over {len(cards)} devices: every value is exact"


def _without_shares(findings: Sequence[Finding]) -> list[Finding]:
    """Leave out cards whose share of an all-reduce is wrong where several hold this wrong result.

    Each reduce-scatter but NCCL's is such shares.
    """
    passed_on = {each.subject for each in findings if each.where.startswith("all-reduce") and each.device is None}
    return [
        each
        for each in findings
        if each.subject == "nccl" or each.subject not in passed_on or not each.where.startswith("reduce-scatter")
    ]


def _blame_copies(machine: Machine, account: Account, context: CheckContext) -> None:
    """Look for wrong copies, of a pair or of one card. If there are some, they are the cause of the wrong result.

    They do not explain why the share of a card at neither end is missing everywhere.
    """
    trials = Trials()
    # More than other checks make at first: a pair that is wrong in one of ten copies is missed once in 70 times.
    copy(machine, Level.STANDARD, context.seed, trials)
    causes = blame_copies(machine, context.seed, trials)
    if not causes:
        return
    ends = {account.cards[label].device for each in causes for label in (each.card, each.source) if label is not None}
    explained = [
        each
        for each in account.findings
        if each.kind == "corruption" and (each.device in ends or not each.found.endswith(ON_ALL))
    ]
    wrong = ", ".join(sorted({each.where for each in explained}))
    account.findings = [each for each in account.findings if each not in explained]
    for each in copying_findings(causes, account.cards, {}):
        account.add(
            replace(
                each,
                found=f"{each.found}; wrong values after {wrong}",
                message=f"{each.message}; values are also wrong after {wrong}",
            )
            if explained
            else each
        )


def _no_library(error: NoLibrary, where: str) -> Finding:
    return finding(
        "software",
        None,
        where,
        expected=f"a working {error.library}",
        found=error.why,
        message=f"{error.library} does not work, so collectives that use it were not tested: {error.why}",
        next_step=f"install {error.library} with python -m pip install 'tensorflow[and-cuda]'; "
        f"{error.library}_DEBUG=WARN shows why it fails, and the check 'software' lists missing libraries",
        subject=error.library,
    )


def _measure(
    machine: Machine, kind: str, algorithm: str, shares: Iterator[list[NDArray[Any]]], account: Account
) -> float | None:
    """Return the time of the fastest run, in seconds; ``None`` where the clock did not advance."""
    cards = machine.cards
    fastest: float | None = None
    for again in range(REPEATS + 1):
        arrays = next(shares)
        started = machine.clock_s()
        found = machine.collective(kind, algorithm, arrays)
        # The real machine times the ops, without the copies to and from the cards.
        taken_s = getattr(machine, "collective_s", None) or machine.clock_s() - started
        fastest = taken_s if again and (fastest is None or taken_s < fastest) else fastest
        account.count(
            *(card.label for card in cards), programs=1, values=sum(int(each.size) for each in found), ops=len(cards)
        )
        known = {(each.where, each.device) for each in account.findings}
        wrong = judge_collective(kind, algorithm, cards, arrays, found)
        account.add(*(each for each in wrong if (each.where, each.device) not in known))
    if not fastest:
        return None
    measured = bandwidth(kind, arrays[0].nbytes, len(cards), fastest)
    for name, value in (("algorithm", measured.algorithm), ("bus", measured.bus)):
        account.figures.append(
            Figure(
                f"{kind} {algorithm} {name}",
                value,
                "GB/s",
                size_bytes=measured.size_bytes,
                quantity=Quantity.BANDWIDTH,
            )
        )
    return fastest


def _rotated(arrays: Sequence[NDArray[Any]], run: int) -> list[NDArray[Any]]:
    """Return other shares for each run, so that what an earlier one left in memory is wrong."""
    return [np.roll(array, run) for array in arrays]


def _shares(seed: int, elements: int, cards: int) -> list[NDArray[Any]]:
    """Return integers other than 0, different on each card, so that a missing share is seen and known."""
    random = np.random.default_rng(seed)
    size = -(-elements // cards) * cards
    return [random.integers(1, LARGEST, size).astype(np.float32) for _ in range(cards)]


CHECK = Check(
    id="collectives",
    title="collectives over all devices",
    proves="all-reduce, all-gather, reduce-scatter and broadcast give each device the exact values, by every algorithm "
    "that the machine has",
    minimum_devices=1,
    typical_s=1,
    run=run,
    hardware=True,
    timed=True,
    one_process=True,
    reads=(Driver.LIBRARIES,),
)
