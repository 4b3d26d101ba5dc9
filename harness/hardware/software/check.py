"""Driver, libraries, TensorFlow and cards fit together, and an op runs on each card."""

from __future__ import annotations

import numpy as np

from harness.checking.check import Check, CheckContext, Driver
from harness.hardware.account import Account, on_machine
from harness.hardware.bits import changed_bits
from harness.hardware.finding import finding
from harness.hardware.machine import Machine
from harness.hardware.operations import matmul
from harness.hardware.software.judge import judge_software
from harness.hardware.tensor_float import describe_tf32
from harness.plural import plural
from harness.records import CheckResult

#: Side of the matrices of integers that each card multiplies.
SIZE = 16


def run(context: CheckContext) -> CheckResult:
    """Compare the versions, and multiply small integers on each card."""
    # Users who select CPUs are not interested in the GPUs beside them.
    on_gpu = not context.devices.spec.startswith(("cpu", "cores", "softgpu"))
    return on_machine(context, lambda machine, account: _check(machine, account, context.seed, on_gpu))


def _check(machine: Machine, account: Account, seed: int, on_gpu: bool) -> str:
    software = machine.software()
    present = machine.present if on_gpu or not machine.cards else ()
    unusable = judge_software(software, machine.cards, present, account)
    compared = account.exercised.values
    operation = matmul(SIZE, "float32")
    random = np.random.default_rng(seed)
    operands = [random.integers(-8, 9, (SIZE, SIZE)).astype(np.float32) for _ in range(2)]
    expected = operation.reference(*operands).astype(np.float32)
    for card in (card for card in machine.cards if card.label not in unusable):
        buffers = [machine.put(each, card.label) for each in operands]
        found = machine.fetch(machine.run(operation, card.label, buffers))
        account.count(card.label, programs=1, values=int(expected.size), ops=1)
        wrong = changed_bits(found, expected)
        if wrong:
            account.found(
                finding(
                    "arithmetic",
                    card,
                    f"{operation.name}, element {list(wrong.index)}",
                    expected=wrong.expected,
                    found=wrong.found,
                    message=f"multiplies small integers incorrectly: {plural(wrong.elements, 'element')}",
                    next_step="take it out of service, and run the check 'arithmetic' to see what else is wrong",
                    subject=operation.name,
                )
            )
    account.scope += describe_tf32(machine.cards, software.tf32, {})
    if unusable:
        labels = ", ".join(card.label for card in machine.cards if card.label in unusable)
        account.scope.append(f"no op was run on {labels}, because none can run there")
    product = f"a correct product on {plural(len(machine.cards), 'device')}" if machine.cards else "no device to use"
    return f"{plural(compared, 'comparison')} of versions and kernels, and {product}"


CHECK = Check(
    id="software",
    title="driver, libraries and TensorFlow",
    proves="the versions of driver, CUDA, cuDNN and NCCL suit this TensorFlow, its wheel has kernels for each GPU, "
    "no library is missing, and each device multiplies small integers correctly",
    minimum_devices=0,
    typical_s=0.3,
    run=run,
    hardware=True,
    reads=(Driver.VERSIONS, Driver.LIBRARIES),
)
