"""``cpu:N``: N logical CPUs in this process."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.devices.inventory import Inventory
from harness.devices.kinds.kind import DeviceSpec, Form, Request, counted
from harness.devices.plan import Plan, hidden_gpus, local_plan
from harness.devices.settings import RuntimeSettings
from harness.plural import plural

_CPU = re.compile(r"cpu:([0-9]+)")


@dataclass(frozen=True, slots=True)
class CpuSpec(DeviceSpec):
    """N logical CPUs. GPUs are hidden, so that the process takes none of their memory."""

    FORMS = (Form("cpu:N", "N logical CPUs"),)
    HINTS = (("cpu", "say how many logical CPUs, as in 'cpu:4'"),)

    count: int

    def __str__(self) -> str:
        return f"cpu:{self.count}"

    @classmethod
    def parse(cls, text: str) -> CpuSpec | None:
        """Parse ``cpu:N``."""
        count = counted(_CPU, text)
        return None if count is None else cls(count)

    def plan(self, request: Request, inventory: Inventory) -> Plan:
        """Plan one thread inside an op and N between ops, so that each device behaves like one core."""
        options = request.options
        runtime = RuntimeSettings(
            logical_cpus=self.count,
            intra_op_threads=1 if options.intra_op_threads is None else options.intra_op_threads,
            inter_op_threads=self.count if options.inter_op_threads is None else options.inter_op_threads,
        )
        reason = f"{plural(self.count, 'logical CPU')}, as requested{hidden_gpus(inventory)}"
        return local_plan("CPU", "logical-cpu", ["/physical_device:CPU:0"] * self.count, runtime, options, reason)
