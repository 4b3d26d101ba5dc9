"""Driver, libraries, TensorFlow and cards fit together, and an op runs on each card."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from harness.checking.check import Check, CheckContext, CheckOutcome
from harness.checking.tally import Tally
from harness.hardware.disagreement import bits
from harness.hardware.naming import described, device_of
from harness.hardware.needs import on_cards
from harness.hardware.operations import matmul
from harness.hardware.software.judge import judge_software
from harness.hardware.tensor_float import TensorFloat, said
from harness.records import Exercised, Finding, Verdict

if TYPE_CHECKING:
    from harness.hardware.machine import Machine

#: Side of the matrices of whole numbers that each card multiplies.
SIZE = 16


def run(context: CheckContext) -> CheckOutcome:
    """Compare the versions, and multiply small whole numbers on each card."""
    # Who asks for CPUs by name does not ask about the GPUs beside them.
    gpus_meant = not context.devices.spec.startswith(("cpu", "cores"))
    return on_cards(context, lambda machine: _compare(machine, context.seed, gpus_meant))


def _compare(machine: Machine, seed: int, gpus_meant: bool) -> CheckOutcome:
    software = machine.software()
    judged = judge_software(software, machine.cards, machine.present if gpus_meant else ())
    tally = Tally()
    tally.count(Exercised(values=judged.compared))
    tally.found(*sorted(judged.findings, key=lambda each: each.severity is not Verdict.FAIL))
    for why in judged.unproven:
        tally.unproven(why)
    operation = matmul(SIZE, "float32")
    random = np.random.default_rng(seed)
    operands = [random.integers(-8, 9, (SIZE, SIZE)).astype(np.float32) for _ in range(2)]
    expected = operation.reference(*operands).astype(np.float32)
    left_out = [card.label for card in machine.cards if card.label in judged.unusable]
    for card in machine.cards:
        if card.label in left_out:
            continue
        buffers = [machine.put(each, card.label) for each in operands]
        found = machine.fetch(machine.run(operation, card.label, buffers))
        tally.count(Exercised(programs=1, values=int(expected.size), ops=1, devices=(device_of(card),)))
        wrong = bits(expected, found)
        if wrong.count:
            message = f"{described(card)} multiplies small whole numbers wrong: {wrong.count} element(s)"
            where = f"{operation.name}, element {list(wrong.index)}"
            tally.found(Finding("arithmetic", where, device_of(card), wrong.first, wrong.second, message))
            step = f"take {card.label} out of use, and run --only arithmetic to see what else is wrong"
            judged.steps[step] = Verdict.FAIL
    scope = [*judged.scope, *said([TensorFloat(card, software.tf32, None) for card in machine.cards])]
    if left_out:
        scope.append(f"no op was run on {', '.join(left_out)}: none can run there")
    passed = (
        f"{judged.compared} comparisons of versions and kernels, and a right product on {len(machine.cards)} card(s)"
    )
    step = judged.next_step or "install nvidia-ml-py, so that the driver can be asked"
    return replace(tally.outcome(passed, step), scope=tuple(scope))


CHECK = Check(
    id="software",
    title="driver, libraries and TensorFlow",
    proves="driver, CUDA, cuDNN and NCCL are what this TensorFlow was built for, the wheel has kernels for each card, "
    "no library is missing, and each card multiplies small whole numbers right",
    minimum_devices=1,
    typical_s=1,
    run=run,
    hardware=True,
)
