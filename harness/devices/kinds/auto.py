"""``auto``: the best devices for tests of correctness that are available."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.devices.inventory import Inventory
from harness.devices.kinds.cpu import CpuSpec
from harness.devices.kinds.gpu import GpuSpec
from harness.devices.kinds.kind import DeviceSpec, Form, Request
from harness.devices.kinds.logical_gpu import LogicalGpuSpec
from harness.devices.plan import Plan

#: Logical CPUs where there is no GPU: enough for uneven batches, few enough for a laptop.
AUTO_CPUS = 4
#: Share of the free memory for each of two logical GPUs. The remaining fifth is for CUDA's own context and libraries,
#: which do not count towards TensorFlow's limit.
AUTO_MEMORY_PART = 0.4
#: Memory of each logical GPU, in MiB, where the free memory is unknown: fits a 4 GiB card.
AUTO_MEMORY_MIB = 1024
#: Below this much each, in MiB, the GPU counts as full: cuDNN's workspaces alone need more.
AUTO_MEMORY_LEAST_MIB = 256


@dataclass(frozen=True, slots=True)
class AutoSpec(DeviceSpec):
    """Two or more real GPUs, else two logical GPUs on the one GPU, else four logical CPUs."""

    FORMS = (
        Form(
            "auto",
            f"the real GPUs if there are two or more, else two logical GPUs on the only GPU, else cpu:{AUTO_CPUS}",
        ),
    )

    def __str__(self) -> str:
        return "auto"

    @classmethod
    def parse(cls, text: str) -> AutoSpec | None:
        """Parse ``auto``."""
        return cls() if text == "auto" else None

    def plan(self, request: Request, inventory: Inventory) -> Plan:
        """Select another kind, and plan that."""
        selected, why = _select(inventory)
        return replace(selected.plan(request, inventory), reason=f"{self} selected {selected}: {why}")


def _select(inventory: Inventory) -> tuple[DeviceSpec, str]:
    gpus = inventory.gpus
    if len(gpus) >= 2:
        return GpuSpec(), f"found {len(gpus)} real GPUs: {', '.join(str(gpu) for gpu in gpus)}"
    if not gpus:
        unusable = f"TensorFlow cannot use {', '.join(inventory.unusable)}" if inventory.unusable else "no GPU found"
        return CpuSpec(AUTO_CPUS), unusable
    gpu = gpus[0]
    if gpu.free_mib is None:
        each, source = AUTO_MEMORY_MIB, "free memory unknown"
    else:
        each, source = int(gpu.free_mib * AUTO_MEMORY_PART), f"{AUTO_MEMORY_PART:.0%} of the free {gpu.free_mib:,} MiB"
    if each < AUTO_MEMORY_LEAST_MIB:
        return CpuSpec(AUTO_CPUS), f"the only GPU is full: {gpu}"
    return LogicalGpuSpec(2, each), f"found one GPU: {gpu}; each logical GPU gets {each:,} MiB ({source})"
