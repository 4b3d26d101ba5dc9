"""``softgpu:N``, ``softgpu:NxM``, ``softgpu:@NAME`` and ``softgpu:FILE.toml``: GPUs made of software."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.devices.inventory import Inventory
from harness.devices.kinds.kind import DeviceSpec, Form, Request, counted
from harness.devices.plan import Plan, local_plan
from harness.devices.settings import GpuSettings, RuntimeSettings
from harness.devices.shipped import shipped_folder
from harness.errors import DevicesUnavailable
from harness.plural import plural
from harness.softgpu import DescribedGpus, SoftwareGpus

_SOFTWARE_GPU = re.compile(r"softgpu:([0-9]+)(?:x([0-9]+))?")
#: Memory of each, in MiB, by default. What a program does not write takes none of the machine's memory.
DEFAULT_MIB = 2048
#: The least, in MiB: TensorFlow's own buffers and a small model need as much.
LEAST_MIB = 16
#: The most, in MiB, as in a description.
MOST_MIB = 65_536


@dataclass(frozen=True, slots=True)
class SoftwareGpuSpec(DeviceSpec):
    """N software GPUs of M MiB each. ``auto`` never chooses them."""

    FORMS = (
        Form("softgpu:N", "N software GPUs, which run GPU programs on the CPU"),
        Form("softgpu:NxM", "N software GPUs of M MiB each"),
    )
    HINTS = (("softgpu(:.*)?", "say how many software GPUs, as in 'softgpu:2', or 'softgpu:2x512' for 512 MiB each"),)

    count: int
    memory_mib: int = DEFAULT_MIB

    def __str__(self) -> str:
        return f"softgpu:{self.count}" + ("" if self.memory_mib == DEFAULT_MIB else f"x{self.memory_mib}")

    @classmethod
    def parse(cls, text: str) -> SoftwareGpuSpec | None:
        """Parse ``softgpu:N`` and ``softgpu:NxM``."""
        count = counted(_SOFTWARE_GPU, text)
        if count is None:
            return None
        _, _, memory = text.partition("x")
        memory_mib = int(memory) if memory else DEFAULT_MIB
        if memory_mib < LEAST_MIB:
            raise ValueError(f"a software GPU needs {LEAST_MIB} MiB or more")
        if memory_mib > MOST_MIB:
            raise ValueError(f"a software GPU has at most {MOST_MIB:,} MiB")
        return cls(count, memory_mib)

    def plan(self, request: Request, inventory: Inventory) -> Plan:  # noqa: ARG002
        """Plan one thread inside an op, and between ops one for each device and as many for the host."""
        return _planned(SoftwareGpus(self.count, self.memory_mib), "as requested", request)


@dataclass(frozen=True, slots=True)
class DescribedGpuSpec(DeviceSpec):
    """The software GPUs of a machine that is described in a file, with its faults."""

    FORMS = (
        Form("softgpu:@NAME", "the software GPUs of a shipped description, as in softgpu:@faulty-8"),
        Form("softgpu:FILE.toml", "the software GPUs of a machine that is described in a file, with its faults"),
    )

    machine: str

    def __str__(self) -> str:
        return f"softgpu:{self.machine}"

    @classmethod
    def parse(cls, text: str) -> DescribedGpuSpec | None:
        """Parse ``softgpu:@NAME`` and ``softgpu:FILE.toml``."""
        kind, _, machine = text.partition(":")
        if kind != "softgpu" or not (machine.startswith("@") or machine.endswith(".toml")):
            return None
        if machine.startswith("@"):
            known = [f"@{path.stem}" for path in sorted(shipped_folder("fake").glob("*.toml"))]
            if machine not in known:
                raise ValueError(f"no described machine is named {machine}; the names are {', '.join(known)}")
        return cls(machine)

    @property
    def path(self) -> Path:
        """The file of the description."""
        if self.machine.startswith("@"):
            return shipped_folder("fake") / f"{self.machine[1:]}.toml"
        return Path(self.machine).absolute()

    def within(self, folder: Path) -> DescribedGpuSpec:
        """Take a relative path of the file from ``folder``."""
        return self if self.machine.startswith("@") else replace(self, machine=str(folder.absolute() / self.machine))

    def inventory(self, tensorflow: Any) -> Inventory:  # noqa: ARG002
        """Look at nothing: the real driver would be loaded, and this process then keeps it."""
        return Inventory()

    def gpus(self, visible: str | None = None) -> DescribedGpus:
        """The GPUs that TensorFlow sees on the machine; with ``visible``, as with that ``CUDA_VISIBLE_DEVICES``.

        Raises:
            DevicesUnavailable: there are none.
            InvalidDescription: the file is wrong.
        """
        gpus = self.machine_described(visible)
        if not gpus.count:
            error = int(dict(gpus.driver)["cuinit"])
            none = "every GPU in it is missing, lost, absent or hidden by CUDA_VISIBLE_DEVICES"
            why = f"cuInit fails with error {error}" if error else none
            needed = f"a GPU that TensorFlow can use; the described machine has none: {why}"
            advice = "change the description or CUDA_VISIBLE_DEVICES, or request logical CPUs with 'cpu:N'"
            raise DevicesUnavailable(str(self), needed, [], advice)
        return gpus

    def machine_described(self, visible: str | None = None) -> DescribedGpus:
        """The machine, also one on which TensorFlow sees no GPU. Raise InvalidDescription if the file is wrong."""
        from harness.devices.described.reading import load_description
        from harness.devices.described.state import gpus_of

        return gpus_of(load_description(self.path), self.path, visible)

    def plan(self, request: Request, inventory: Inventory) -> Plan:  # noqa: ARG002
        """Plan the GPUs that TensorFlow sees on the machine."""
        return _planned(self.gpus(), f"as {self.path.name} describes them", request)


def _planned(gpus: SoftwareGpus | DescribedGpus, why: str, request: Request) -> Plan:
    options = request.options
    physical = [f"/physical_device:GPU:{index}" for index in range(gpus.count)]
    runtime = RuntimeSettings(
        logical_cpus=1,
        gpus=tuple(GpuSettings(name) for name in physical),
        intra_op_threads=1 if options.intra_op_threads is None else options.intra_op_threads,
        inter_op_threads=2 * gpus.count if options.inter_op_threads is None else options.inter_op_threads,
    )
    sizes = sorted({gpus.memory_of(number) for number in range(gpus.count)})
    memory = " or ".join(f"{size:,}" for size in sizes)
    reason = f"{plural(gpus.count, 'software GPU')} of {memory} MiB each, {why}; no real GPU is tested"
    plan = local_plan("GPU", "software-gpu", physical, runtime, options, reason)
    return replace(plan, software_gpus=gpus)
