"""What a hardware check cannot do without: a machine, a card, and room on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from harness.checking.check import CheckContext, CheckOutcome
from harness.hardware.machine import DeviceMemoryFull
from harness.hardware.naming import described, device_of
from harness.records import Finding, Verdict

if TYPE_CHECKING:
    from harness.hardware.machine import Machine


def on_cards(context: CheckContext, body: Callable[[Machine], CheckOutcome]) -> CheckOutcome:
    """What ``body`` says; UNKNOWN without a machine or a card, and FAIL where a card has no room for what is to run."""
    machine = cast("Machine | None", context.machine)
    if machine is None:
        return CheckOutcome(
            Verdict.UNKNOWN,
            "no machine was given to this check, so that no hardware was exercised",
            "run it with harness validate, which looks at this machine",
        )
    if not machine.cards and not machine.present:
        return CheckOutcome(Verdict.UNKNOWN, "the machine has no card", "ask for devices with --devices, such as cpu:2")
    try:
        return body(machine)
    except DeviceMemoryFull as full:
        return _no_room(machine, full)


def _no_room(machine: Machine, full: DeviceMemoryFull) -> CheckOutcome:
    card = next((card for card in machine.cards if full.device in (card.label, card.device)), None)
    name = described(card) if card is not None else full.device
    message = f"{name} has no room for {full.size_bytes} bytes"
    finding = Finding(
        kind="memory",
        where="allocation",
        device=device_of(card) if card is not None else full.device,
        expected=f"room for {full.size_bytes} bytes",
        found="none",
        message=message,
    )
    step = f"see with nvidia-smi which process has the memory of {full.device}, end it, and run it again"
    return CheckOutcome(Verdict.FAIL, f"memory: {message}", step, findings=(finding,))
