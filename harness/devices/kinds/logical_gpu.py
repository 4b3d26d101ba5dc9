"""``gpu:NxM``: logical GPUs that share the first real one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.devices.inventory import Inventory
from harness.devices.kinds.kind import DeviceSpec, Form, Request, counted
from harness.devices.plan import Plan, local_plan
from harness.devices.settings import GpuSettings, RuntimeSettings
from harness.errors import DevicesUnavailable
from harness.plural import plural

_LOGICAL_GPU = re.compile(r"gpu:([0-9]+)x([0-9]+)")


@dataclass(frozen=True, slots=True)
class LogicalGpuSpec(DeviceSpec):
    """N logical GPUs of M MiB each on the first GPU."""

    FORMS = (Form("gpu:NxM", "N logical GPUs of M MiB each on the first GPU"),)

    count: int
    memory_mib: int

    def __str__(self) -> str:
        return f"gpu:{self.count}x{self.memory_mib}"

    @classmethod
    def parse(cls, text: str) -> LogicalGpuSpec | None:
        """Parse ``gpu:NxM``."""
        count = counted(_LOGICAL_GPU, text)
        if count is None:
            return None
        memory_mib = int(text.rpartition("x")[2])
        if memory_mib < 1:
            raise ValueError("a logical GPU needs 1 MiB or more")
        return cls(count, memory_mib)

    def plan(self, request: Request, inventory: Inventory) -> Plan:
        """Plan a split of the first GPU, if so much of its memory is free as far as the driver says."""
        options = request.options
        total = self.count * self.memory_mib
        gpu = inventory.gpus[0] if inventory.gpus else None
        if gpu is None or (gpu.free_mib is not None and total > gpu.free_mib):
            needed = f"a GPU with {total:,} MiB free ({self.count} x {self.memory_mib:,} MiB)"
            advice = DevicesUnavailable.USE_CPUS
            if gpu is not None:
                advice = "request fewer or smaller logical GPUs, or logical CPUs with 'cpu:N'"
            raise DevicesUnavailable(str(request), needed, inventory.names, advice)
        settings = (GpuSettings(gpu.physical, (self.memory_mib,) * self.count),)
        runtime = RuntimeSettings(1, settings, options.intra_op_threads, options.inter_op_threads)
        reason = f"{plural(self.count, 'logical GPU')} of {self.memory_mib:,} MiB on {gpu}, as requested"
        return local_plan("GPU", "logical-gpu", [gpu.physical] * self.count, runtime, options, reason)
