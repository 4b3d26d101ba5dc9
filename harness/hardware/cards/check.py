"""All cards that the driver knows are there for TensorFlow, each once, numbered as they should be, and compute."""

from __future__ import annotations

import numpy as np

from harness.checking.check import Check, CheckContext, CheckOutcome
from harness.hardware.account import Account, on_machine
from harness.hardware.advised import advised
from harness.hardware.bits import changed_bits
from harness.hardware.cards.judge import judge_numbering
from harness.hardware.known_answers import known_answers
from harness.hardware.machine import Machine


def run(context: CheckContext) -> CheckOutcome:
    """Hold the driver's list of cards against TensorFlow's, and compute something on each."""
    return on_machine(context, lambda machine, account: _check(machine, account, context))


def _check(machine: Machine, account: Account, context: CheckContext) -> str:
    software = machine.software()
    findings, scope = judge_numbering(machine.cards, machine.present, software.numbering, software.visible)
    account.found_all(findings)
    account.scope += scope
    _computes(machine, context, account)
    there = ", ".join(card.label for card in machine.cards)
    return f"{len(machine.cards)} card(s), each there once, numbered as it should be, computes: {there}"


def _computes(machine: Machine, context: CheckContext, account: Account) -> None:
    """A product of whole numbers on each card, with data of its own, so that no card can answer for another."""
    for index, card in enumerate(machine.cards):
        answer = known_answers(context.seed, index)[0]
        buffers = [machine.put(array, card.label) for array in answer.arrays]
        result = machine.fetch(machine.run(answer.operation, card.label, buffers))
        account.count(card.label, values=int(np.size(result)), ops=1, programs=1)
        changed = changed_bits(result, answer.expected)
        if changed.elements == answer.expected.size:
            # A few wrong elements are for the checks of arithmetic and corruption; here a card does not compute at all.
            account.found(
                advised(
                    "corruption",
                    card,
                    answer.operation.name,
                    "the exact product",
                    f"{changed.elements} of {answer.expected.size} elements differ",
                    "does not compute: no element of a product of whole numbers is right",
                    "take it out of use, and see what the checks corruption and arithmetic say",
                )
            )


CHECK = Check(
    id="cards",
    title="cards and their numbers",
    proves="every card that the driver knows and that is not hidden is there for TensorFlow, once, in the order that "
    "CUDA_VISIBLE_DEVICES makes, and computes",
    minimum_devices=1,
    typical_s=0.5,
    run=run,
    hardware=True,
)
