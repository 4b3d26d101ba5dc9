"""One process for each card, all at once: each sees and uses the card that it was given, and no other.

The check ``tasks`` shows that ``harness run`` starts and reports programs; this one asks of every card by its UUID.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from harness.checking.check import Check, CheckContext, CheckOutcome, Level
from harness.checking.tally import Tally
from harness.devices.device import Devices
from harness.hardware.isolation.alone import SIZE, TIMES
from harness.hardware.isolation.judge import Given, Seen, judge_isolation
from harness.hardware.naming import device_of
from harness.hardware.needs import on_cards
from harness.hardware.own_process import ask_each
from harness.parallel.tasks import Slot, slots
from harness.records import Card, Exercised, Verdict

if TYPE_CHECKING:
    from harness.hardware.machine import Machine

#: How long all processes may take, in seconds. Each loads TensorFlow.
LIMIT_S = 120.0
#: Processes without a GPU at most: each more costs seconds and shares the same cores.
MOST_CPU = 4


def run(context: CheckContext) -> CheckOutcome:
    """Start a process for each card, and judge what each saw."""
    return on_cards(context, lambda machine: _each(machine, context))


def _each(machine: Machine, context: CheckContext) -> CheckOutcome:
    if machine.described:
        return _skip("the machine is described in a file: no process could have its cards", "run it on hardware")
    spec = _spec(context.devices)
    if spec is None:
        why = f"{context.devices.spec}: parts of a card, or on another host, and so no process can have one alone"
        return _skip(why, "run it with whole cards of this host: --devices gpu, cpu:N or cores:N")
    cards = machine.cards if spec == "gpu" else machine.cards[:MOST_CPU]
    tally, scope = Tally(), list[str]()
    pairs = _pairs(cards, slots(spec), tally)
    if len(cards) < len(machine.cards):
        scope.append(f"{len(cards)} of {len(machine.cards)} cards had a process")
    for given, (seen, why) in zip([each for each, _ in pairs], _run([slot for _, slot in pairs]), strict=True):
        tally.found(*judge_isolation(given, seen, why))
        if seen is None:
            continue
        tally.count(Exercised(programs=1, values=SIZE**2, ops=TIMES + 1, devices=(device_of(given.card),)))
        if given.uuid is not None and seen.used is None:
            scope.append(f"the driver does not say on which cards the process with {given.card.label} had memory")
    outcome = tally.outcome(
        f"{len(pairs)} processes at once, each with a card that it alone was given, and a right result",
        _next_step(tally),
    )
    return replace(outcome, scope=tuple(scope))


def _skip(why: str, step: str) -> CheckOutcome:
    return CheckOutcome(Verdict.SKIP, why, step)


def _spec(devices: Devices) -> str | None:
    """What :func:`slots` is asked for; ``None`` where no process can have such a device to itself."""
    kinds = {device.kind for device in devices}
    if kinds == {"gpu"}:
        return "gpu"
    if kinds == {"logical-cpu"}:
        return f"cpu:{min(len(devices), MOST_CPU)}"
    return f"cores:{min(len(devices), MOST_CPU)}" if kinds == {"core"} else None


def _pairs(cards: Sequence[Card], there: Sequence[Slot], tally: Tally) -> list[tuple[Given, Slot]]:
    """Each card with the slot that gives it to a process: a GPU by its UUID, and a CPU by its place."""
    by_uuid = {slot.uuid: slot for slot in there if slot.uuid is not None}
    pairs = []
    for number, card in enumerate(cards):
        slot = by_uuid.get(card.uuid or "") if by_uuid else there[number]
        if slot is None:
            tally.unproven(
                f"the UUID of {card.label} is not known to the driver, so that it can be given to no process"
            )
            continue
        pairs.append((Given(card, slot.uuid, slot.cpus), slot))
    return pairs


def _run(given: Sequence[Slot]) -> list[tuple[Seen | None, str]]:
    """What each of the processes says, or why it says nothing. All run at the same time."""
    told = [{"cpus": slot.cpus, "environment": slot.environment} for slot in given]
    return [_read(heard, why) for heard, why in ask_each(alone_module(), told, LIMIT_S)]


def alone_module() -> str:
    """The module that runs in each process."""
    return "harness.hardware.isolation.alone"


def _read(heard: str | None, why: str) -> tuple[Seen | None, str]:
    if heard is None:
        return None, why
    try:
        return TypeAdapter(Seen).validate_json(heard), ""
    except ValidationError as error:
        return None, f"it said something else: {error.errors()[0]['msg']}"


def _next_step(tally: Tally) -> str:
    named = list(dict.fromkeys(each.where.removeprefix("process with ") for each in tally.findings))
    if not named:
        return "install nvidia-ml-py, so that cards can be named by their UUID"
    return (
        f"look at {', '.join(named)}: compare nvidia-smi -L with CUDA_VISIBLE_DEVICES of the process; a container may "
        "be given other cards than it names"
    )


CHECK = Check(
    id="isolation",
    title="one process for each card",
    proves="processes that are each given one card, all at once, see that card alone by its UUID (CPUs: run on no "
    "other), use no other card's memory, and compute right",
    minimum_devices=1,
    typical_s=12,
    run=run,
    level=Level.STANDARD,
    hardware=True,
)
