"""Every GPU of the driver is visible to TensorFlow, once and in the right order, and every device computes."""

from __future__ import annotations

import numpy as np

from harness.checking.check import Check, CheckContext, Driver
from harness.devices.nvidia import nvml_refusal
from harness.hardware.account import Account, on_machine
from harness.hardware.bits import changed_bits
from harness.hardware.cards.alike import judge_alike
from harness.hardware.cards.judge import judge_cuda, judge_numbering, judge_start, judge_unreachable
from harness.hardware.cards.skipped import skipping_lines
from harness.hardware.finding import finding
from harness.hardware.known_answers import known_answers
from harness.hardware.machine import Machine
from harness.plural import plural
from harness.records import CheckResult


def run(context: CheckContext) -> CheckResult:
    """Compare the driver's list of cards with TensorFlow's, and compute something on each."""
    return on_machine(context, lambda machine, account: _check(machine, account, context))


def _check(machine: Machine, account: Account, context: CheckContext) -> str:
    software = machine.software()
    # Users who select CPUs are not interested in the GPUs beside them.
    if not context.devices.spec.startswith(("cpu", "cores")):
        account.found(*judge_unreachable(machine.present, software.around))
        account.found(judge_start(machine.cards, machine.present, nvml_refusal(), software.around))
        account.found(*judge_cuda(machine.cards, machine.present, software))
    findings, scope = judge_numbering(
        machine.cards,
        machine.present,
        software.numbering,
        software.visible,
        around=software.around,
        log=skipping_lines(),
    )
    account.found(*findings)
    account.scope += scope
    odd, differences = judge_alike(machine.cards)
    account.found(*odd)
    account.scope += differences
    if not machine.cards and not account.findings:
        account.unproven("TensorFlow can use none of the GPUs", "see the findings of the check 'software'")
    _compute(machine, context, account)
    labels = ", ".join(card.label for card in machine.cards)
    return f"{plural(len(machine.cards), 'device')}, each visible once, in order, and computing correctly: {labels}"


def _compute(machine: Machine, context: CheckContext, account: Account) -> None:
    """Multiply integers on each card, with data of its own, so that no card can answer for another."""
    for index, card in enumerate(machine.cards):
        answer = known_answers(context.seed, index)[0]
        buffers = [machine.put(array, card.label) for array in answer.arrays]
        result = machine.fetch(machine.run(answer.operation, card.label, buffers))
        account.count(card.label, values=int(np.size(result)), ops=1, programs=1)
        changed = changed_bits(result, answer.expected)
        # A few wrong elements are for the checks arithmetic and corruption; here a card does not compute at all.
        if changed.elements == answer.expected.size:
            account.found(
                finding(
                    "corruption",
                    card,
                    answer.operation.name,
                    expected="the exact product",
                    found=f"{changed.elements:,} of {answer.expected.size:,} elements differ",
                    message="does not compute: every element of a product of integers is wrong",
                    next_step="take it out of service, and see the results of the checks 'arithmetic' and 'corruption'",
                )
            )


CHECK = Check(
    id="cards",
    title="devices and their numbers",
    proves="TensorFlow sees every GPU that CUDA_VISIBLE_DEVICES names (if unset, every GPU of the driver) exactly once "
    "and in this order, and every device computes",
    minimum_devices=0,
    typical_s=0.2,
    run=run,
    hardware=True,
    reads=(Driver.CARDS,),
)
