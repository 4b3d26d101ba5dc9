"""The task of a worker process that measures what the cards of this machine reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from harness.errors import UsageError
from harness.runner.messages import Answer, plain

if TYPE_CHECKING:
    from harness.hardware.profile_rates import Rate
    from harness.runner.worker import Send


@dataclass(frozen=True)
class Arguments:
    """The task's arguments: a device spec."""

    spec: str


def run(arguments: dict[str, object], send: Send) -> None:
    """Configure the devices, measure each card, and send the figures of all cards joined."""
    from harness.devices.runtime import configure
    from harness.hardware.profile_rates import joined, measure
    from harness.hardware.real import TensorFlowMachine

    asked = TypeAdapter(Arguments).validate_python(arguments)
    devices = configure(asked.spec)
    shared = [device.name for device in devices if device.kind == "logical-gpu"]
    if shared:
        raise UsageError(f"--devices {asked.spec}: logical GPUs share a card; accepted: gpu, gpu:N, cpu:N or cores:N")
    machine = TensorFlowMachine(devices)
    names = sorted({card.name for card in machine.cards})
    if len(names) > 1:
        raise UsageError(f"--devices {asked.spec}: cards of several kinds ({', '.join(names)}); take those of one kind")
    figures: dict[str, list[Rate]] = {}
    for _, rate in measure(machine):
        figures.setdefault(rate.figure, []).append(rate)
    send(
        Answer(
            {
                "name": names[0],
                "cards": [card.label for card in machine.cards],
                "reason": devices.reason,
                "rates": [plain(joined(rates)) for rates in figures.values()],
            }
        )
    )
