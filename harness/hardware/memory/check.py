"""The memory of each card: patterns that are written, held and read back there, and steps that do not leak."""

from __future__ import annotations

from functools import partial

from harness.checking.check import Check, CheckContext, Driver, Level
from harness.hardware.account import Account, on_machine
from harness.hardware.machine import Machine
from harness.hardware.memory.judge import (
    LEAST_SHARE,
    gigabytes,
    judge_coverage,
    judge_growth,
    judge_held,
    judge_pattern,
)
from harness.hardware.memory.measure import Region, fill, on_all, patterns, read, regions_of, repeat_step
from harness.plural import plural
from harness.records import CheckResult

#: How long each pattern is held before it is read back, in seconds.
HELD_S = {Level.QUICK: 0.05, Level.STANDARD: 0.5, Level.DEEP: 2.0}
#: Repetitions of the step that must not leak.
STEPS = {Level.QUICK: 200, Level.STANDARD: 1_000, Level.DEEP: 1_000}


def run(context: CheckContext) -> CheckResult:
    """Fill the memory of all cards with each pattern, hold it, read it back there; then repeat a step."""
    return on_machine(context, lambda machine, account: _check(machine, account, context))


def _check(machine: Machine, account: Account, context: CheckContext) -> str:
    import psutil

    # The step runs first, so that what the first operations keep for ever is already in use.
    sampled = _leaks(machine, context, account)
    held = machine.holders()
    account.found(*(judge_held(card, held, psutil.pid_exists) for card in machine.cards))
    regions = regions_of(machine, context.level)
    count, held_s = len(patterns(0)), HELD_S[context.level]
    reported: set[str] = set()
    for number in range(count):
        on_all(regions, partial(fill, machine, number))
        machine.wait_s(held_s)
        changes = on_all(regions, partial(read, machine, number))
        for region, change in zip(regions, changes, strict=True):
            label = region.card.label
            account.count(label, values=region.had // 8, ops=2 * len(region.sizes))
            # One finding per card: the same cell is wrong with several patterns.
            if change is not None and label not in reported:
                account.found(judge_pattern(region.card, *change))
                reported.add(label)
    for region in regions:
        _cover(region, account)
    account.scope.append(f"{plural(count, 'pattern')}, each held for {held_s} s")
    cpus = [region for region in regions if not region.card.is_gpu]
    if cpus:
        tested = f"{gigabytes(sum(region.had for region in cpus))} of the host's memory"
    else:
        least = min((region.had / region.free for region in regions if region.free), default=0.0)
        tested = f"at least {least:.0%} of the free memory of each of {plural(len(regions), 'GPU')}"
    leaks = f"no leak in {STEPS[context.level]:,} steps" if sampled else "not all devices were checked for leaks"
    return f"{plural(count, 'pattern')} read back unchanged, {leaks}: {tested}"


def _cover(region: Region, account: Account) -> None:
    label, had = region.card.label, gigabytes(region.had)
    if not region.card.is_gpu:
        account.scope.append(f"{label}: tested {had}{f' of {gigabytes(region.free)} free' if region.free else ''}")
    elif region.free is None:
        account.scope.append(f"{label}: tested {had}; free memory unknown")
        account.unproven(
            f"{label}: free memory unknown, so it is not proven that {LEAST_SHARE:.0%} of it was tested",
            "install nvidia-ml-py, or a TensorFlow that reports its memory in use; for a GPU of another host, run "
            "this check on that host",
        )
    else:
        share = region.had / region.free if region.free else 0.0
        account.scope.append(f"{label}: tested {had} of {gigabytes(region.free)} free ({share:.0%})")
        account.found(judge_coverage(region.card, region.had, region.free))
    if not region.had:
        account.unproven(f"{label}: no memory could be allocated", "free memory on the device and run this check again")
    account.measured[f"tested_bytes_{label}"] = float(region.had)


def _leaks(machine: Machine, context: CheckContext, account: Account) -> bool:
    """Repeat a step on each card, and return whether the memory in use is known of each."""
    steps = STEPS[context.level]
    unknown = []
    for index, card in enumerate(machine.cards):
        used, host = repeat_step(machine, card, index, context.seed, steps)
        account.count(card.label, ops=steps, programs=1)
        known = [each for each in used if each is not None]
        if len(known) < 6:
            unknown.append(card.label)
        else:
            account.found(judge_growth(card, known, steps, host=not card.is_gpu))
        known = [each for each in host if each is not None]
        if card.is_gpu and len(known) >= 6:
            account.found(judge_growth(card, known, steps, host=True))
    if unknown:
        account.scope.append(f"not checked for leaks, because the memory in use is unknown: {', '.join(unknown)}")
    return not unknown


CHECK = Check(
    id="memory",
    title="memory of the devices",
    proves="patterns are read back unchanged from the memory of each device (of a GPU, from at least 90% of what is "
    "free), and a repeated step does not leak",
    minimum_devices=1,
    typical_s=2.5,
    run=run,
    hardware=True,
    reads=(Driver.PROCESSES,),
)
