"""Memory growth, limits and logical splits: each in a process of its own, which asks for memory until it gets no more.

It runs before the other checks: what TensorFlow has once taken of a card, this process never gives back.
"""

from __future__ import annotations

from harness.checking.check import Check, CheckContext, CheckOutcome, Level
from harness.hardware.account import Account, is_cpu, on_machine
from harness.hardware.machine import Machine
from harness.hardware.memory_settings.judge import described_setting, judge_setting, too_full
from harness.hardware.memory_settings.setting import (
    CHUNK_MIB,
    CPU_SPLIT,
    GROWTH,
    LIMIT,
    SPLIT,
    MemorySeen,
    MemorySetting,
)
from harness.records import Card, Verdict


def run(context: CheckContext) -> CheckOutcome:
    """Try each setting on each card, and judge what the processes saw."""
    kinds = {device.kind for device in context.devices}
    if context.machine is not None and not context.machine.described and not kinds <= {"gpu", "logical-cpu"}:
        why = f"{context.devices.spec}: parts of a card, cores or other hosts, whose settings are made where they begin"
        return CheckOutcome(Verdict.SKIP, why, "run it with whole cards of this host: --devices gpu or cpu:N")
    return on_machine(context, _check)


def _check(machine: Machine, account: Account) -> str:
    gpus = [card for card in machine.cards if not is_cpu(card)]
    cpu = next((card for card in machine.cards if is_cpu(card)), None)
    for setting in (GROWTH, LIMIT, SPLIT):
        named = [card for card in gpus if card.uuid is not None]
        # One setting at a time, so that each process has the card to itself.
        seen = machine.memory_settings([(card.label, setting) for card in named]) if named else []
        for card, each in zip(named, seen, strict=True):
            _judge(card, setting, each, account)
    for card in gpus:
        if card.uuid is None:
            account.unproven(f"{card.label}: its UUID is not known, so that no process can be given it", _INSTALL)
    if cpu is not None:
        # All logical CPUs are of one device.
        (each,) = machine.memory_settings([(cpu.label, CPU_SPLIT)])
        _judge(cpu, CPU_SPLIT, each, account)
        account.scope.append("logical CPUs: the split alone; TensorFlow knows no growth and no limit of a CPU's memory")
    settings = (GROWTH, LIMIT, SPLIT) if gpus else (CPU_SPLIT,)
    did = ", ".join(described_setting(setting) for setting in settings)
    return f"{did}: each did what it says on {len(gpus) or 1} card(s)"


_INSTALL = "install nvidia-ml-py, so that the driver can be asked"


def _judge(card: Card, setting: MemorySetting, seen: MemorySeen | str, account: Account) -> None:
    account.found_all(judge_setting(card, setting, seen))
    if isinstance(seen, str):
        return
    chunks = sum(seen.had_bytes) // (CHUNK_MIB * 2**20)
    account.count(card.label, values=sum(seen.had_bytes) // 4, ops=chunks, programs=1)
    name = described_setting(setting)
    account.scope.append(f"{card.label} with {name}: {sum(seen.had_bytes) // 2**20} MiB could be had")
    if too_full(setting, seen):
        free = (seen.free_bytes or 0) // 2**20
        account.unproven(
            f"{card.label} with {name}: others have so much of it that {free} MiB are free",
            "run it with --only memory-settings while nobody else uses the card",
        )
    elif seen.held_bytes is None and not is_cpu(card):
        account.unproven(f"{card.label} with {name}: the driver does not say what a process holds", _INSTALL)


CHECK = Check(
    id="memory-settings",
    title="memory growth, limits and splits",
    proves="a process with memory growth takes what it needs of a card, one with a limit no more than that, and a card "
    "that is split is as many logical devices with a limit each (CPUs: the split)",
    minimum_devices=1,
    typical_s=8,
    run=run,
    level=Level.STANDARD,
    hardware=True,
)
