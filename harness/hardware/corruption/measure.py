"""Programs with an exact result, repeated with their work permuted over the cards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.checking.check import Level
from harness.hardware.bits import changed_bits
from harness.hardware.blame import Trial, Trials
from harness.hardware.known_answers import (
    KnownAnswer,
    digest,
    digest_of,
    digest_weights,
    known_answers,
    many_answers,
)
from harness.hardware.machine import Buffer, Job, Machine

if TYPE_CHECKING:
    import numpy.typing as npt

#: Rounds by level. In a round each card runs every program and a digest of its result once: in quick 240 runs each, in
#: which a card that is wrong with p = 0.05 is missed once in 200,000 times.
ROUNDS = {Level.QUICK: 40, Level.STANDARD: 300, Level.DEEP: 2_000}
#: Results of each program on each card that the card itself compares, in operations of ``AT_ONCE``: with 95 %
#: confidence, ``standard`` excludes that 1 in 300 of them is wrong, with a margin. ``quick`` has only its rounds.
RESULTS = {Level.QUICK: 0, Level.STANDARD: 1_536, Level.DEEP: 12_288}
AT_ONCE = 16
#: The time limit on slow devices, in seconds; each index runs on each card before it applies.
LIMIT_S = {Level.QUICK: 2.5, Level.STANDARD: 14.0, Level.DEEP: 150.0}
#: The same of ``RESULTS``: four cards on two cores take a few seconds. Where it ends them, the check says what is left.
RESULTS_LIMIT_S = {Level.QUICK: 0.0, Level.STANDARD: 45.0, Level.DEEP: 600.0}


@dataclass(slots=True)
class Program:
    """One program: its answer for each index, and on each card its arguments and the weights of its digest."""

    answers: list[KnownAnswer]
    weights: npt.NDArray[np.int64]
    arguments: dict[tuple[int, str], tuple[Buffer, ...]] = field(default_factory=dict)
    weights_on: dict[str, Buffer] = field(default_factory=dict)

    def run_digest(self, machine: Machine, card: str, result: Buffer) -> Buffer:
        """Compute the digest of a result on its card."""
        operation = digest(self.answers[0].operation.result_dtype)
        return machine.run(operation, card, [result, self.weights_on[card]])


def prepare(machine: Machine, seed: int) -> list[Program]:
    """Put the arguments of all programs on all cards, and build the programs there."""
    on_cpu = all(card.kind == "CPU" for card in machine.cards)
    # A single card alternates between two sets of data, so what an earlier round left in memory is a wrong answer.
    count = max(2, len(machine.cards))
    by_index = [known_answers(seed, index, on_cpu=on_cpu) for index in range(count)]
    programs = []
    for answers in zip(*by_index, strict=True):
        weights = digest_weights(answers[0].expected.size, seed)
        program = Program(list(answers), weights)
        for card in machine.cards:
            program.weights_on[card.label] = machine.put(weights, card.label)
            for index, answer in enumerate(answers):
                program.arguments[index, card.label] = tuple(machine.put(array, card.label) for array in answer.arrays)
            # The first run builds the operation, which is not part of the time of a level.
            result = machine.run(answers[0].operation, card.label, program.arguments[0, card.label])
            program.run_digest(machine, card.label, result)
        programs.append(program)
    return programs


def compute(machine: Machine, programs: Sequence[Program], level: Level, into: Trials) -> None:
    """Run all programs in rounds, each time with the indices on other cards."""
    labels = [card.label for card in machine.cards]
    began = machine.clock_s()
    for number in range(max(ROUNDS[level], len(labels))):
        if number >= len(labels) and machine.clock_s() - began > LIMIT_S[level]:
            return
        on = [labels[(index + number) % len(labels)] for index in range(len(labels))]
        shards = range(len(on)) if len(on) > 1 else [number % 2]
        for program in programs:
            jobs = [
                Job(program.answers[shard].operation, card, program.arguments[shard, card])
                for shard, card in zip(shards, on, strict=True)
            ]
            results = [ran.result for ran in machine.at_once(jobs)]
            for index, (shard, card, result) in enumerate(zip(shards, on, results, strict=True)):
                on_card = machine.fetch(program.run_digest(machine, card, result))
                answer = program.answers[shard]
                _compare(answer, program.weights, index, card, machine.fetch(result), int(on_card.reshape(-1)[0]), into)


def repeat(machine: Machine, seed: int, level: Level, into: Trials) -> None:
    """Run each program many times on all cards, with each index on each card while the time lasts.

    The cards compare the results themselves, so nothing is fetched but how many were wrong.
    """
    labels = [card.label for card in machine.cards]
    on_cpu = all(card.kind == "CPU" for card in machine.cards)
    count = max(2, len(labels))
    repeats = -(-RESULTS[level] // (AT_ONCE * count))
    by_index = [many_answers(seed, index, AT_ONCE, on_cpu=on_cpu) for index in range(count)] if repeats else []
    programs = list(zip(*by_index, strict=True))
    began = machine.clock_s()
    for number in range(count if repeats else 0):
        if number and machine.clock_s() - began > RESULTS_LIMIT_S[level]:
            return
        on = [labels[(index + number) % len(labels)] for index in range(len(labels))]
        shards = list(range(len(on))) if len(on) > 1 else [number]
        for answers in programs:
            operation = answers[0].operation
            jobs = [
                Job(operation, card, tuple(machine.put(array, card) for array in answers[shard].arrays), repeats)
                for shard, card in zip(shards, on, strict=True)
            ]
            for shard, card, ran in zip(shards, on, machine.at_once(jobs), strict=True):
                for at, runs in enumerate(machine.fetch(ran.result).tolist()):
                    wrong = min(int(runs), repeats)
                    if wrong:
                        text = f"{operation.name}: result {at} is wrong in {wrong:,} of {repeats:,} runs"
                        into.details.setdefault(card, text)
                        into.details.setdefault(f"index {shard}", text)
                    into.trials += [Trial(card, run < wrong, shard, program=operation.name) for run in range(repeats)]


def _compare(
    answer: KnownAnswer,
    weights: npt.NDArray[np.int64],
    index: int,
    card: str,
    result: npt.NDArray[Any],
    on_card: int,
    into: Trials,
) -> None:
    """Compare the result with the known answer, and the card's digest of it with the host's of what was fetched."""
    name = answer.operation.name
    changed = changed_bits(result, answer.expected)
    on_host = int(digest_of(result, weights)) if result.size == weights.size else None
    if changed:
        into.details.setdefault(card, f"{name}: {changed}")
        into.details.setdefault(f"index {index}", f"{name}: {changed}")
    if on_card != on_host:
        into.details.setdefault(card, f"{name}: the device's digest differs from that of the fetched result")
    into.trials.append(Trial(card, bool(changed), index, found=on_host, program=name))
    into.trials.append(Trial(card, on_card != on_host, index, found=None, program=f"digest of {name}"))
