"""The task of a worker process that looks at the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from harness.runner.messages import Answer, plain

if TYPE_CHECKING:
    from harness.runner.worker import Send


@dataclass(frozen=True)
class Arguments:
    """The task's arguments: a device spec to configure, or ``None`` to look without configuring anything."""

    spec: str | None = None


def run(arguments: dict[str, object], send: Send) -> None:
    """Send the physical devices, what ``auto`` and a measurement select, the configured devices and the fingerprint."""
    import tensorflow as tf

    from harness.devices.cores import allowed_cpu_time
    from harness.devices.fingerprint import fingerprint
    from harness.devices.inventory import read_inventory
    from harness.devices.measuring import measuring_spec
    from harness.devices.request import resolve
    from harness.devices.runtime import configure

    asked = TypeAdapter(Arguments).validate_python(arguments)
    inventory = read_inventory(tf)
    auto = resolve("auto").plan(inventory).reason
    devices = configure(asked.spec) if asked.spec is not None else None
    send(
        Answer(
            {
                "physical": list(inventory.names),
                "auto": auto,
                "measuring": measuring_spec(inventory, allowed_cpu_time()).reason,
                "reason": devices.reason if devices is not None else None,
                "devices": [plain(device) for device in devices or ()],
                "fingerprint": plain(fingerprint(devices)),
            }
        )
    )
