"""Memory growth, limits and logical splits: each in a separate process, which allocates until it gets no more.

It runs before the other checks, because this process never gives back what TensorFlow has taken of a card.
"""

from __future__ import annotations

from harness.checking.check import Check, CheckContext, Level, skipped
from harness.hardware.account import Account, on_machine
from harness.hardware.finding import only_one_process
from harness.hardware.machine import Machine
from harness.hardware.memory_settings.judge import judge_setting, setting_name, too_full
from harness.hardware.memory_settings.setting import (
    CHUNK_MIB,
    CPU_SPLIT,
    GROWTH,
    LIMIT,
    SPLIT,
    MemorySeen,
    MemorySetting,
)
from harness.plural import plural
from harness.records import Card, CheckResult

_INSTALL = "install nvidia-ml-py, so that the driver can be queried"


def run(context: CheckContext) -> CheckResult:
    """Try each setting on each card, and judge what the processes got."""
    kinds = {device.kind for device in context.devices}
    if kinds == {"software-gpu"}:
        why = "each setting needs a fresh process, and software GPUs cannot be given to another process"
        return skipped(why, "select CPUs or real GPUs: --devices cpu:2 or gpu")
    if context.machine is not None and not kinds <= {"gpu", "logical-cpu"}:
        why = (
            f"{context.devices.spec}: logical GPUs, cores and devices of other hosts have no memory settings that can "
            "be tested here"
        )
        return skipped(why, "use whole devices of this host: --devices gpu or cpu:N")
    cards = context.machine.cards if context.machine is not None else ()
    if exclusive := [card.label for card in cards if card.exclusive]:
        return skipped(*only_one_process(exclusive))
    return on_machine(context, _check)


def _check(machine: Machine, account: Account) -> str:
    gpus = [card for card in machine.cards if card.is_gpu]
    cpu = next((card for card in machine.cards if not card.is_gpu), None)
    for setting in (GROWTH, LIMIT, SPLIT):
        known = [card for card in gpus if card.uuid is not None]
        # One setting at a time, so that each process has the card to itself.
        seen = machine.memory_settings([(card.label, setting) for card in known]) if known else []
        for card, each in zip(known, seen, strict=True):
            _judge(card, setting, each, account)
    for card in gpus:
        if card.uuid is None:
            account.unproven(f"{card.label}: UUID unknown, so the device cannot be given to a process", _INSTALL)
    if cpu is not None:
        # All logical CPUs belong to one physical device.
        (each,) = machine.memory_settings([(cpu.label, CPU_SPLIT)])
        _judge(cpu, CPU_SPLIT, each, account)
        account.scope.append(
            "CPUs: only the split into logical CPUs was tested; TensorFlow has neither memory growth nor a memory "
            "limit for a CPU"
        )
    settings = (GROWTH, LIMIT, SPLIT) if gpus else (CPU_SPLIT,)
    return f"{', '.join(map(setting_name, settings))}: each works on {plural(len(gpus) or 1, 'device')}"


def _judge(card: Card, setting: MemorySetting, seen: MemorySeen | str, account: Account) -> None:
    account.found(*judge_setting(card, setting, seen))
    if isinstance(seen, str):
        return
    had = sum(seen.had_bytes)
    account.count(card.label, values=had // 4, ops=had // (CHUNK_MIB * 2**20), programs=1)
    name = setting_name(setting)
    account.scope.append(f"{card.label} with {name}: {had // 2**20:,} MiB allocated")
    if too_full(setting, seen):
        account.unproven(
            f"{card.label} with {name}: other processes leave only {(seen.free_bytes or 0) // 2**20:,} MiB free",
            "run `harness validate --only memory-settings` while nothing else uses the device",
        )
    elif seen.held_bytes is None and card.is_gpu:
        account.unproven(f"{card.label} with {name}: the driver does not report the memory of a process", _INSTALL)


CHECK = Check(
    id="memory-settings",
    title="memory growth, limits and splits",
    proves="memory growth, a memory limit and a split into logical GPUs each take effect in a process of their own; on "
    "CPUs only the split is tested",
    minimum_devices=1,
    typical_s=8,
    run=run,
    level=Level.STANDARD,
    hardware=True,
)
