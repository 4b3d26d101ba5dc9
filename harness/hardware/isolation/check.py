"""One process for each card, all at once: each sees and uses the card that it was given, and no other.

The check ``tasks`` shows that ``harness run`` starts and reports programs; this one verifies every card by its UUID.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.checking.check import Check, CheckContext, Level, skipped
from harness.devices.device import Devices
from harness.hardware.account import Account, on_machine
from harness.hardware.finding import only_one_process
from harness.hardware.isolation.judge import Given, Seen, judge_isolation
from harness.hardware.isolation.measure import SIZE, TIMES
from harness.hardware.machine import Machine
from harness.hardware.own_process import ask_each
from harness.parallel.tasks import Slot, slots
from harness.plural import plural
from harness.records import Card, CheckResult

#: How long all processes may take, in seconds. Each loads TensorFlow.
LIMIT_S = 120.0
#: The most processes without a GPU: each costs seconds, and they share the same cores.
MOST_CPU = 4
#: The task of each process.
TASK = "harness.hardware.isolation.measure:run"


def run(context: CheckContext) -> CheckResult:
    """Start a process for each card, and judge what each saw."""
    machine = context.machine
    if machine is not None and machine.cards:
        if {device.kind for device in context.devices} == {"software-gpu"}:
            why = "software GPUs belong to the process that makes them: no other process can be given one"
            return skipped(why, "select CPUs or real GPUs: --devices cpu:2 or gpu")
        if exclusive := [card.label for card in machine.cards if card.exclusive]:
            return skipped(*only_one_process(exclusive))
        if _spec(context.devices) is None:
            why = (
                f"{context.devices.spec}: part of a GPU, or a device of another host, cannot be reserved for "
                "one process"
            )
            step = "use whole devices of this host: --devices gpu, cpu:N or cores:N"
            return skipped(why, step)
    return on_machine(context, lambda machine, account: _check(machine, account, _spec(context.devices) or "gpu"))


def _check(machine: Machine, account: Account, spec: str) -> str:
    cards = machine.cards if spec == "gpu" else machine.cards[:MOST_CPU]
    pairs = _pairs(cards, slots(spec), account)
    if len(cards) < len(machine.cards):
        account.scope.append(f"{len(cards)} of {len(machine.cards)} devices were given to processes")
    arguments = [{"cpus": slot.cpus, "environment": slot.environment} for _, slot in pairs]
    for (given, _), seen in zip(pairs, ask_each(Seen, TASK, arguments, LIMIT_S), strict=True):
        account.found(*judge_isolation(given, seen))
        if isinstance(seen, str):
            continue
        account.count(given.card.label, programs=1, values=SIZE**2, ops=TIMES + 1)
        if given.uuid is not None and seen.used is None:
            account.scope.append(
                f"the driver does not report which GPUs were used by the process that was given {given.card.label}"
            )
    return f"{plural(len(pairs), 'process', 'processes')} at once, each with its own device and a correct result"


def _spec(devices: Devices) -> str | None:
    """Return the spec for :func:`slots`; ``None`` if no process can have such a device to itself."""
    kinds = {device.kind for device in devices}
    if kinds == {"gpu"}:
        return "gpu"
    if kinds == {"logical-cpu"}:
        return f"cpu:{min(len(devices), MOST_CPU)}"
    return f"cores:{min(len(devices), MOST_CPU)}" if kinds == {"core"} else None


def _pairs(cards: Sequence[Card], there: Sequence[Slot], account: Account) -> list[tuple[Given, Slot]]:
    """Pair each card with the slot that gives it to a process: a GPU by its UUID, and a CPU by its place."""
    by_uuid = {slot.uuid: slot for slot in there if slot.uuid is not None}
    pairs = []
    for number, card in enumerate(cards):
        slot = by_uuid.get(card.uuid or "") if by_uuid else there[number]
        if slot is None:
            account.unproven(
                f"the driver does not know the UUID of {card.label}, so the device cannot be given to a process",
                "install nvidia-ml-py, so that GPUs can be selected by their UUID",
            )
            continue
        pairs.append((Given(card, slot.uuid, slot.cpus), slot))
    return pairs


CHECK = Check(
    id="isolation",
    title="one process for each device",
    proves="when processes run at once, each with a device of its own, each process sees only its GPU (by UUID) or "
    "runs only on its CPUs, uses no memory of another GPU, and computes correctly",
    minimum_devices=1,
    typical_s=12,
    run=run,
    level=Level.STANDARD,
    hardware=True,
)
