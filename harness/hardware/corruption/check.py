"""Silent corruption: programs with an exact result, repeated, with their work permuted over the cards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.checking.check import Check, CheckContext, CheckOutcome, Level
from harness.hardware.account import Account, is_cpu, on_machine
from harness.hardware.at_once import Job, at_once
from harness.hardware.bits import changed_bits
from harness.hardware.blamed import computing_findings, copying_findings
from harness.hardware.delivery import judge_delivery
from harness.hardware.known_answers import KnownAnswer, digest, digest_of, digest_weights, known_answers
from harness.hardware.machine import Buffer, Machine, Pattern
from harness.hardware.majority import Trial, blame_computing, blame_copying, unseen_rate

if TYPE_CHECKING:
    import numpy.typing as npt

#: Rounds by level. In a round each card runs every program and a digest of its result once: in quick 240 runs on each,
#: of which one that is wrong with p = 0.05 is missed once in 200,000 times.
ROUNDS = {Level.QUICK: 40, Level.STANDARD: 300, Level.DEEP: 2_000}
#: How long that may take on slow devices, in seconds; each index has been on each card before it counts.
LIMIT_S = {Level.QUICK: 2.5, Level.STANDARD: 14.0, Level.DEEP: 150.0}
#: How often each ordered pair is copied, and how much.
COPIES = {Level.QUICK: 8, Level.STANDARD: 40, Level.DEEP: 200}
COPIED_BYTES = 64 * 2**10
#: Odd, and with about as many ones as zeros: each 64-bit word of a pattern is another one.
STEP = 0x9E3779B97F4A7C15


@dataclass(slots=True)
class _Program:
    """One program: its answer for each index, and on each card its arguments and the weights of its digest."""

    answers: list[KnownAnswer]
    weights: npt.NDArray[np.int64]
    arguments: dict[tuple[int, str], tuple[Buffer, ...]] = field(default_factory=dict)
    weights_on: dict[str, Buffer] = field(default_factory=dict)


def run(context: CheckContext) -> CheckOutcome:
    """Compute and copy what is known exactly, and find who is to blame for what differs."""
    return on_machine(context, lambda machine, account: _check(machine, account, context))


def _check(machine: Machine, account: Account, context: CheckContext) -> str:
    cards = {card.label: card for card in machine.cards}
    programs = _prepare(machine, context.seed)
    trials: list[Trial] = []
    details: dict[str, str] = {}
    _compute(machine, programs, context.level, trials, details)
    if blame := blame_computing(trials):
        if any(each.intermittent or not each.sure for each in blame):
            # Its rate is worth knowing better, and so is whose it is.
            _compute(machine, programs, context.level, trials, details)
            blame = blame_computing(trials)
        account.found_all(computing_findings(blame, cards, details))
    size = sum(program.answers[0].expected.size for program in programs) // len(programs)
    # Half of the trials are results, every element of which is compared; half are digests.
    account.count(*cards, values=len(trials) // 2 * (size + 1), ops=len(trials), programs=len(programs))
    copies = _copy(machine, context, account)
    runs = len(trials) // max(1, len(cards))
    account.scope.append(
        f"{runs} runs on each of {len(cards)} card(s), each index on each card: a card that is wrong once in "
        f"{round(1 / unseen_rate(runs))} runs or more often is seen with 95 % confidence"
    )
    account.measured["runs_per_card"] = float(runs)
    return (
        f"{len(trials)} results with an exact answer and {copies} copies on {len(cards)} card(s): "
        "every bit is right, at every element"
    )


def _prepare(machine: Machine, seed: int) -> list[_Program]:
    on_cpu = all(is_cpu(card) for card in machine.cards)
    # One card has two sets of data by turns: what an earlier round left in memory is another answer.
    count = max(2, len(machine.cards))
    by_index = [known_answers(seed, index, on_cpu=on_cpu) for index in range(count)]
    programs = []
    for answers in zip(*by_index, strict=True):
        weights = digest_weights(answers[0].expected.size, seed)
        program = _Program(list(answers), weights)
        for card in machine.cards:
            program.weights_on[card.label] = machine.put(weights, card.label)
            for index, answer in enumerate(answers):
                program.arguments[index, card.label] = tuple(machine.put(array, card.label) for array in answer.arrays)
        _build(machine, program)
        programs.append(program)
    return programs


def _build(machine: Machine, program: _Program) -> None:
    """The first run of an operation on a card builds it, which is no part of the time that a level has."""
    for card in machine.cards:
        result = machine.run(program.answers[0].operation, card.label, program.arguments[0, card.label])
        told = digest(program.answers[0].operation.result_dtype)
        machine.run(told, card.label, [result, program.weights_on[card.label]])


def _compute(
    machine: Machine, programs: Sequence[_Program], level: Level, trials: list[Trial], details: dict[str, str]
) -> None:
    labels = [card.label for card in machine.cards]
    began = machine.clock_s()
    for round_number in range(max(ROUNDS[level], len(labels))):
        if round_number >= len(labels) and machine.clock_s() - began > LIMIT_S[level]:
            return
        on = [labels[(index + round_number) % len(labels)] for index in range(len(labels))]
        shards = range(len(on)) if len(on) > 1 else [round_number % 2]
        for program in programs:
            jobs = [
                Job(program.answers[shard].operation, card, program.arguments[shard, card])
                for shard, card in zip(shards, on, strict=True)
            ]
            results = [ran.result for ran in at_once(machine, jobs)]
            operation = digest(program.answers[0].operation.result_dtype)
            for index, (shard, card, result) in enumerate(zip(shards, on, results, strict=True)):
                told = machine.fetch(machine.run(operation, card, [result, program.weights_on[card]]))
                answer = program.answers[shard]
                trials += _trials(answer, program.weights, index, card, machine.fetch(result), told, details)


def _trials(
    answer: KnownAnswer,
    weights: npt.NDArray[np.int64],
    index: int,
    card: str,
    result: npt.NDArray[Any],
    told: npt.NDArray[Any],
    details: dict[str, str],
) -> tuple[Trial, Trial]:
    """The result against the known answer, and the card's own digest of it against that of what was fetched."""
    name = answer.operation.name
    changed = changed_bits(result, answer.expected)
    digest_here = int(digest_of(result, weights)) if result.size == weights.size else None
    if changed:
        text = f"{name}: {changed.elements} element(s), {changed.bits} bit(s), the first at element {changed.first}"
        details.setdefault(card, text)
        details.setdefault(f"index {index}", text)
    same = int(told.reshape(-1)[0]) == digest_here
    if not same:
        details.setdefault(card, f"{name}: the card's own digest of a result is not that of what was fetched")
    return (
        Trial(card, bool(changed), index, found=digest_here, program=name),
        Trial(card, not same, index, found=None, program=f"digest of {name}"),
    )


def _copy(machine: Machine, context: CheckContext, account: Account) -> int:
    """Every ordered pair of cards, with a pattern of its own each time, compared where it arrives by ops there."""
    cards = {card.label: card for card in machine.cards}
    trials: list[Trial] = []
    details: dict[str, str] = {}
    first = context.seed
    for _ in range(COPIES[context.level]):
        for source in cards:
            first = (first * 6364136223846793005 + 1442695040888963407) % 2**64
            pattern = Pattern(first, STEP)
            made = machine.fill(source, COPIED_BYTES, pattern)
            for target in cards:
                if target == source:
                    continue
                mismatch = machine.mismatch(machine.move(made, target), pattern)
                seen = judge_delivery(machine, cards, made, source, target, mismatch, pattern, COPIED_BYTES)
                trials.append(Trial(target, seen.wrong, source=source))
                if seen.wrong:
                    details.setdefault(f"{source} -> {target}", seen.text(COPIED_BYTES // 8))
                account.found_once(seen.memory)
    account.found_all(copying_findings(blame_copying(trials), cards, details))
    account.count(*(cards if trials else ()), values=len(trials) * COPIED_BYTES // 8, ops=2 * len(trials))
    return len(trials)


CHECK = Check(
    id="corruption",
    title="silent corruption",
    proves="programs with an exact result give every bit of it on each card and at each index, again and again, and "
    "every ordered pair of cards delivers what was sent",
    minimum_devices=1,
    typical_s=4,
    run=run,
    hardware=True,
)
