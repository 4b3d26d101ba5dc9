"""Collectives over all cards: the values that each card holds afterwards, and the bandwidth."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.checking.check import Check, CheckContext, Driver, Level, skipped
from harness.devices.nvidia import silenced
from harness.hardware.account import Account, on_machine
from harness.hardware.blame import Trials, copying_findings
from harness.hardware.collectives.judge import (
    KINDS,
    LEAST_S,
    Wrong,
    bandwidth,
    common_gbs,
    judge_bandwidth,
    judge_collective,
)
from harness.hardware.delivery import blame_copies, copy
from harness.hardware.finding import amount, device_of, finding
from harness.hardware.machine import Machine, NeverReturns, NoLibrary
from harness.plural import plural
from harness.records import Card, CheckResult, Figure, Finding, Quantity

#: Elements that each card contributes, by level, as float32; rounded up to a multiple of the number of cards.
ELEMENTS = {Level.QUICK: (2**14, 2**20), Level.STANDARD: (2**10, 2**16, 2**22), Level.DEEP: (2**10, 2**16, 2**24)}
#: Without a GPU everything is copied by the cores that the devices share.
ELEMENTS_CPU = {Level.QUICK: (2**14, 2**18), Level.STANDARD: (2**10, 2**16, 2**20), Level.DEEP: (2**10, 2**16, 2**22)}
#: Sums of integers up to this are exact in float32 over 128 cards.
LARGEST = 2**16
#: What to do about a collective that hangs, by whether NCCL runs it.
_UNHANG = {
    True: "find out which way makes NCCL hang: run a program with NCCL_DEBUG=INFO, and with one of NCCL_P2P_DISABLE=1 "
    "(copies between GPUs: then PCIe's ACS or the IOMMU is the cause), NCCL_NVLS_ENABLE=0 (NVSwitches), "
    "NCCL_SHM_DISABLE=1 (small /dev/shm) and NCCL_IB_DISABLE=1; and look for Xid in dmesg",
    False: "find out which copy between the GPUs hangs: see the check 'copies', and look for Xid in dmesg",
}
#: Runs after the first one; the fastest counts.
REPEATS = 2


def run(context: CheckContext) -> CheckResult:
    """Run each kind with each algorithm and size; compare the values and measure the bandwidth."""
    if context.machine is not None and len(context.machine.cards) == 1:
        step = "select two devices or more, such as --devices cpu:2"
        return skipped("one device: nothing to exchange", step)
    return on_machine(context, lambda machine, account: _check(machine, account, context))


def _check(machine: Machine, account: Account, context: CheckContext) -> str:
    cards = machine.cards
    algorithms = machine.algorithms()
    sizes = (ELEMENTS if not all(card.on_host for card in cards) else ELEMENTS_CPU)[context.level]
    broken: set[str] = set()
    wrong: list[Wrong] = []
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
                    shares = (_rotated(arrays, run) for run in runs)
                    taken_s = _measure(machine, kind, algorithm, shares, account, wrong)
                except NoLibrary as error:
                    broken.add(algorithm)
                    account.found(_no_library(error, f"{kind} by {algorithm}"))
                    continue
                except NeverReturns as error:
                    broken.add(algorithm)
                    account.found(_hangs(error, kind, algorithm, arrays[0].nbytes, account.cards.values()))
                    if silenced(card.uuid for card in cards if card.uuid is not None):
                        raise  # it waits for a card that is lost
                    if len(broken) > 1:
                        broken.update(algorithms)  # what hangs keeps the cards busy
                    continue
                if taken_s is not None and algorithm == "nccl" and expected_gbs is not None:
                    # What starting the ops takes is left out, as the smallest collective shows it.
                    start_s.setdefault(kind, taken_s)
                    course_s = taken_s - start_s[kind]
                    account.found(judge_bandwidth(kind, arrays[0].nbytes, len(cards), course_s, expected_gbs))
    if wrong:
        _blame(machine, account, context, wrong)
    if not algorithms:
        account.unproven(
            "no algorithm for collectives works across these devices",
            "select devices of one process: --devices gpu or cpu:N",
        )
    given = " and ".join(f"{size * 4:,} bytes" for size in sizes)
    account.scope += [
        f"algorithms: {', '.join(algorithms) or 'none'}; each device gave {given} of whole numbers in float32",
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
    return f"{', '.join(KINDS)} by {', '.join(algorithms)} over {len(cards):,} devices: every value is exact"


def _blame(machine: Machine, account: Account, context: CheckContext, wrong: Sequence[Wrong]) -> None:
    """Take back the findings about results that have another cause: a sum made elsewhere, or wrong copies."""
    passed_on = {each.finding.subject for each in wrong if each.kind == "all-reduce" and each.finding.device is None}
    # Each reduce-scatter but NCCL's is shares of an all-reduce.
    shares = [each for each in wrong if each.kind == "reduce-scatter" and each.finding.subject in passed_on - {"nccl"}]
    trials = Trials()
    # More than other checks make at first: a pair that is wrong in one of ten copies is missed once in 70 times.
    copy(machine, Level.STANDARD, context.seed, trials)
    causes = blame_copies(machine, context.seed, trials)
    ends = {account.cards[label].device for each in causes for label in (each.card, each.source, *each.cards) if label}
    # Wrong copies do not explain why all results lack the share of a card at neither end.
    copied = [each for each in wrong if causes and not (each.everywhere and each.finding.device not in ends)]
    taken_back = [each.finding for each in (*shares, *copied)]
    account.findings = [each for each in account.findings if each not in taken_back]
    after = ", ".join(sorted({each.finding.where for each in copied}))
    for each in copying_findings(causes, account.cards, {}):
        found, message = f"{each.found}; wrong values", f"{each.message}; values are also wrong"
        account.found(
            replace(each, found=f"{found} after {after}", message=f"{message} after {after}") if after else each
        )


def _hangs(error: NeverReturns, kind: str, algorithm: str, size: int, cards: Iterable[Card]) -> Finding:
    """Report a collective that never returns: one cause for all cards."""
    devices = tuple(device_of(card) for card in cards)
    made = finding(
        "link",
        None,
        f"{kind} by {algorithm}",
        expected=f"a result within {error.limit_s:g} s",
        found="none",
        message=f"{kind} by {algorithm} over {plural(len(devices), 'device')} hangs: with {size:,} bytes from each, it "
        f"did not return within {error.limit_s:g} s",
        next_step=_UNHANG[algorithm == "nccl"],
        subject=f"{kind} {algorithm} hangs",
        lasting=True,
    )
    return replace(made, devices=devices)


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
    machine: Machine,
    kind: str,
    algorithm: str,
    shares: Iterator[list[NDArray[Any]]],
    account: Account,
    into: list[Wrong],
) -> float | None:
    """Return the time of the fastest run, in seconds; ``None`` where the clock did not advance.

    What is wrong is added to the account's findings and to ``into``.
    """
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
        new = [each for each in wrong if (each.finding.where, each.finding.device) not in known]
        account.found(*(each.finding for each in new))
        into += new
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
