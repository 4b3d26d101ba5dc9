"""Devices for checks of a machine: a GPU that cannot be used is what they report, and no CPU takes its place."""

from __future__ import annotations

from harness.devices.bus import without_driver
from harness.devices.device import Devices
from harness.devices.inventory import read_inventory
from harness.devices.kinds.auto import AutoSpec
from harness.devices.kinds.gpu import GpuSpec
from harness.devices.kinds.logical_gpu import LogicalGpuSpec
from harness.devices.kinds.software_gpu import DescribedGpuSpec
from harness.devices.nvidia import cuda_error, nvml_code, nvml_error
from harness.devices.nvml import NO_DRIVER
from harness.devices.request import resolve
from harness.devices.runtime import configure
from harness.lazy import tf
from harness.plural import plural
from harness.softgpu import load


def configure_usable(spec: str) -> Devices:
    """Configure as :func:`configure` does, with its errors, where GPUs can be used or CPUs were asked for.

    If the driver has GPUs that nobody hides, and TensorFlow can use none, there are no devices: ``reason`` says why.
    """
    request = resolve(spec)
    kind = request.spec
    if isinstance(kind, DescribedGpuSpec):
        machine = kind.machine_described()
        if machine.count:
            return configure(spec)
        load(tf, machine)
    elif not isinstance(kind, AutoSpec | GpuSpec | LogicalGpuSpec):
        return configure(spec)
    inventory = read_inventory(tf)
    if not inventory.unusable and isinstance(kind, DescribedGpuSpec) and nvml_code() in NO_DRIVER:
        why = "no GPU can be used: NVIDIA's driver is not loaded, or this container was given no GPU"
        return Devices((), spec=request.text, reason=why)
    if inventory.gpus or not inventory.unusable:
        return configure(spec)
    error = cuda_error()
    cause = "" if error is None else f" (cuInit fails with error {error})"
    broken = nvml_error()
    if absent := without_driver():
        buses = f"{plural(len(absent), 'GPU')} on the PCI bus"
        return Devices((), spec=request.text, reason=f"no GPU can be used: NVIDIA's driver is not loaded for {buses}")
    if broken is None:
        there = f"the driver has {plural(len(inventory.unusable), 'GPU')}, but"
    else:
        there = f"NVML fails ({broken}), and"
    why = f"no GPU can be used: {there} TensorFlow uses none{cause}"
    return Devices((), spec=request.text, reason=why)
