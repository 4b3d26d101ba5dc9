"""``gpu`` and ``gpu:N``: real GPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.devices.inventory import Inventory
from harness.devices.kinds.kind import DeviceSpec, Form, Request, counted
from harness.devices.plan import Plan, local_plan
from harness.devices.settings import GpuSettings, RuntimeSettings
from harness.errors import DevicesUnavailable
from harness.plural import plural

_GPU = re.compile(r"gpu:([0-9]+)")


@dataclass(frozen=True, slots=True)
class GpuSpec(DeviceSpec):
    """All real GPUs (``count`` is ``None``), or the first N."""

    FORMS = (Form("gpu", "all real GPUs"), Form("gpu:N", "the first N real GPUs"))

    count: int | None = None

    def __str__(self) -> str:
        return "gpu" if self.count is None else f"gpu:{self.count}"

    @classmethod
    def parse(cls, text: str) -> GpuSpec | None:
        """Parse ``gpu`` or ``gpu:N``."""
        if text == "gpu":
            return cls()
        count = counted(_GPU, text)
        return None if count is None else cls(count)

    def plan(self, request: Request, inventory: Inventory) -> Plan:
        """Plan the first GPUs; the others are hidden."""
        options = request.options
        found = inventory.gpus
        wanted = len(found) if self.count is None else self.count
        if not 0 < wanted <= len(found):
            advice = "" if found else DevicesUnavailable.USE_CPUS
            raise DevicesUnavailable(str(request), plural(max(wanted, 1), "real GPU"), inventory.names, advice)
        limits = () if options.memory_limit_mib is None else (options.memory_limit_mib,)
        physical = [gpu.physical for gpu in found[:wanted]]
        settings = tuple(GpuSettings(name, limits, options.memory_growth) for name in physical)
        runtime = RuntimeSettings(1, settings, options.intra_op_threads, options.inter_op_threads)
        reason = f"{wanted} of {plural(len(found), 'real GPU')}, as requested"
        return local_plan("GPU", "gpu", physical, runtime, options, reason)
