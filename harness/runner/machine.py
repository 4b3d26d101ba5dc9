"""The task of a worker process that looks at the machine."""

from __future__ import annotations

from harness.runner.job import typed_task
from harness.runner.messages import Answer, plain
from harness.runner.worker import Send


@typed_task
def run(send: Send, spec: str | None = None) -> None:
    """Send the physical devices, what ``auto`` and a measurement select, the configured devices and the fingerprint.

    Without a ``spec`` no devices are configured.
    """
    import tensorflow as tf

    from harness.devices.cores import allowed_cpu_time
    from harness.devices.fingerprint import fingerprint
    from harness.devices.inventory import read_inventory
    from harness.devices.measuring import measuring_spec
    from harness.devices.request import resolve
    from harness.devices.runtime import configure

    inventory = read_inventory(tf)
    auto = resolve("auto").plan(inventory).reason
    devices = configure(spec) if spec is not None else None
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
