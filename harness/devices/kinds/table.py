"""The table of the kinds of device spec. Grammar, plans, help texts and error messages all come from it."""

from __future__ import annotations

from harness.devices.kinds.auto import AutoSpec
from harness.devices.kinds.cluster import ClusterSpec
from harness.devices.kinds.cores import CoresSpec
from harness.devices.kinds.cpu import CpuSpec
from harness.devices.kinds.gpu import GpuSpec
from harness.devices.kinds.kind import DeviceSpec
from harness.devices.kinds.logical_gpu import LogicalGpuSpec
from harness.devices.kinds.software_gpu import DescribedGpuSpec, SoftwareGpuSpec

#: In the order in which help texts and messages name them.
KINDS: tuple[type[DeviceSpec], ...] = (
    AutoSpec,
    CpuSpec,
    GpuSpec,
    LogicalGpuSpec,
    SoftwareGpuSpec,
    DescribedGpuSpec,
    CoresSpec,
    ClusterSpec,
)
