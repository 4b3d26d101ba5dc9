"""Sustained load on all cards at once, with their sensors sampled meanwhile."""

from __future__ import annotations

import statistics

from harness.checking.check import Check, CheckContext, Driver
from harness.hardware.account import Account, on_machine
from harness.hardware.blame import blame_computing, computing_findings
from harness.hardware.finding import amount
from harness.hardware.machine import Machine, Operation, Reading
from harness.hardware.profile import profile_for, profiles_of
from harness.hardware.rates import judge_drift, judge_rates, rate_finding
from harness.hardware.surroundings import surroundings
from harness.hardware.sustained_load.judge import (
    REPAIRS,
    judge_sensors,
    judge_settings,
    judge_unread,
    settings_of,
    silent_sensors,
)
from harness.hardware.sustained_load.measure import Load, load_s, matrices, product, side_for, side_that_fits, work
from harness.hardware.tensor_float import may_use
from harness.plural import plural
from harness.records import CheckResult, Figure, Quantity


def run(context: CheckContext) -> CheckResult:
    """Multiply matrices on all cards for the time of the level, and judge rates and sensors."""
    return on_machine(context, lambda machine, account: _check(machine, account, context))


def _check(machine: Machine, account: Account, context: CheckContext) -> str:
    before = {card.label: machine.reading(card.label) for card in machine.cards}
    # With TF32 products are several times as fast, which is another figure of the profile.
    setting = machine.software().tf32
    figure = "matmul tfloat32" if all(may_use(card, setting) for card in machine.cards) else "matmul float32"
    side, one_s = side_for(machine, machine.cards[0].label, figure, side_that_fits(machine))
    loads = [Load(card, matrices(machine, card.label, side), before[card.label]) for card in machine.cards]
    operation = product(side, figure)
    trials = work(machine, loads, operation, side, one_s, context.level, account.count)
    _judge(loads, operation, account, context)
    cards = account.cards
    details = dict.fromkeys(
        [*cards, *(f"index {at}" for at in range(len(cards)))], f"{figure} of side {side:,}, under load"
    )
    account.found(*computing_findings(blame_computing(trials), cards, details))
    length = load_s(context.level, machine.cards)
    account.scope.append(
        f"{figure} of {side:,} x {side:,} on {plural(len(loads), 'device')} at once for {length:.0f} s"
    )
    judged = any(card.part != "software GPU" for card in machine.cards)
    lowest = min(statistics.median(load.rates) for load in loads)
    return (
        f"{plural(len(loads), 'device')} multiplied matrices for {length:.0f} s at "
        f"{amount(lowest, 'GFLOP/s')} or more{'' if judged else ' (rates of software GPUs are not judged)'}; "
        f"{account.scope[0]}"
    )


def _judge(loads: list[Load], operation: Operation, account: Account, context: CheckContext) -> None:
    cards = [load.card for load in loads]
    profiles = profiles_of(cards)
    name = f"sustained {operation.name}"
    rates = [
        Figure(name, statistics.median(load.rates), "GFLOP/s", load.card.label, quantity=Quantity.RATE)
        for load in loads
    ]
    judged = judge_rates(rates, cards, profiles, context.history, in_profile={name: operation.name})
    account.scope += [_sensors(loads), *judged.scope]
    account.figures += judged.figures
    account.found(*map(rate_finding, judged.offences))
    account.found(*judge_unread(loads, surroundings()))
    odd, hints = judge_settings(loads)
    account.found(*odd)
    account.scope += hints
    for load in loads:
        account.found(judge_drift(load.rates, load.card))
        # Links and limits are those of the whole card.
        profile = profiles.get(load.card.label) or (profile_for(load.card.name) if load.card.part else None)
        account.found(*judge_sensors(load, [other for other in loads if other.card.name == load.card.name], profile))
        figures, findings = settings_of(load, profile)
        account.figures += figures
        account.found(*findings)
        account.series += load.series()


def _sensors(loads: list[Load]) -> str:
    if not any(load.card.is_gpu for load in loads):
        return "no sensors were judged: none of these devices is a GPU with a driver"
    silent, every = silent_sensors(loads), len(Reading.__dataclass_fields__) - 1 - len(REPAIRS)
    if len(silent) == every and not any(each.details.failed for load in loads for each in load.readings):
        return "no sensors on these devices: only the rates were judged"
    lacking = [", ".join(silent)] if silent else []
    for load in loads:
        own = silent_sensors([load])
        if len(own) > len(silent):
            more = "all" if len(own) == every else ", ".join(name for name in own if name not in silent)
            lacking.append(f"{more} of {load.card.label}")
    return f"sensors not available: {'; '.join(lacking).replace('_', ' ')}" if lacking else "all sensors were read"


CHECK = Check(
    id="sustained-load",
    title="sensors and rates under load",
    proves="all devices together keep their rate under sustained load, none is slower than others of its model, and no "
    "sensor reports heat, memory errors, a narrow link or a driver error",
    minimum_devices=1,
    typical_s=4,
    run=run,
    hardware=True,
    reads=(Driver.SENSORS, Driver.STATE),
    timed=True,
)
