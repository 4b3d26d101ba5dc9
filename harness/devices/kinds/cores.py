"""``cores:N``: TensorFlow servers on CPU cores of their own, for measuring speed without a GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.devices.device import Device
from harness.devices.inventory import Inventory
from harness.devices.kinds.kind import DeviceSpec, Form, Request, counted
from harness.devices.plan import Plan, hidden_gpus
from harness.devices.settings import RuntimeSettings
from harness.errors import DevicesUnavailable
from harness.plural import plural

_CORES = re.compile(r"cores:([0-9]+)")
#: Threads of the client's own pools. It splits and joins on the same cores as its servers.
CLIENT_THREADS = 1


@dataclass(frozen=True, slots=True)
class CoresSpec(DeviceSpec):
    """N TensorFlow servers on this machine, each with one thread on a physical CPU core of its own."""

    FORMS = (Form("cores:N", "N TensorFlow servers on this machine, each on a CPU core of its own"),)
    HINTS = (("cores|core(:.*)?", "say how many CPU cores, as in 'cores:2'"),)

    count: int

    def __str__(self) -> str:
        return f"cores:{self.count}"

    @classmethod
    def parse(cls, text: str) -> CoresSpec | None:
        """Parse ``cores:N``."""
        count = counted(_CORES, text)
        return None if count is None else cls(count)

    def plan(self, request: Request, inventory: Inventory) -> Plan:
        """Plan servers on the first physical cores, and one thread in an op and one between ops for the client."""
        options = request.options
        cores = inventory.cores
        if self.count > len(cores):
            available = [*(f"core of CPU {cpu}" for cpu in cores), f"{plural(inventory.cpus_allowed, 'CPU')} in all"]
            needed = f"{plural(self.count, 'CPU core')}, one per device"
            raise DevicesUnavailable(str(request), needed, available)
        cpus = cores[: self.count]
        runtime = RuntimeSettings(
            logical_cpus=1,
            intra_op_threads=CLIENT_THREADS if options.intra_op_threads is None else options.intra_op_threads,
            inter_op_threads=CLIENT_THREADS if options.inter_op_threads is None else options.inter_op_threads,
        )
        devices = tuple(
            Device(f"/job:core/replica:0/task:{task}/device:CPU:0", "core", f"/physical_device:CPU:core={cpu}")
            for task, cpu in enumerate(cpus)
        )
        reason = (
            f"{plural(self.count, 'server')} on loopback with one thread each, as requested, "
            f"on CPU {', '.join(map(str, cpus))} ({plural(len(cores), 'physical core')} available)"
            f"{hidden_gpus(inventory)}"
        )
        return Plan(devices, runtime, options, reason, server_cpus=cpus)
