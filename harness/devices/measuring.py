"""Selects the devices for a measurement of speed by default."""

from __future__ import annotations

from typing import NamedTuple

from harness.devices.cores import allowed_cpu_time
from harness.devices.inventory import Inventory, read_inventory
from harness.lazy import tf
from harness.plural import plural


class MeasuringSpec(NamedTuple):
    """A device spec, and the reason for it."""

    spec: str
    reason: str


def measuring_spec(inventory: Inventory | None = None, cpu_time: float | None = None) -> MeasuringSpec:
    """Select two or more real GPUs, else all physical cores as ``cores:N``.

    A single GPU is never selected: logical GPUs share its arithmetic units. ``inventory`` and ``cpu_time`` (the CPU
    quota, ``None`` without a limit) are looked up by default; that loads TensorFlow, and does not start its runtime.
    """
    if inventory is None:
        inventory, cpu_time = read_inventory(tf), allowed_cpu_time()
    gpus, cores = len(inventory.gpus), len(inventory.cores)
    if gpus >= 2:
        return MeasuringSpec("gpu", f"measurements use gpu: found {gpus} real GPUs")
    count, limit = max(cores, 1), f"this process may use {plural(cores, 'physical core')}"
    if cpu_time is not None and int(cpu_time) < count:
        count, limit = max(int(cpu_time), 1), f"the CPU quota of this process is {cpu_time:g}"
    gpu = "no GPU found" if gpus == 0 else "devices that share the only GPU show no speedup"
    return MeasuringSpec(f"cores:{count}", f"measurements use cores:{count}: {gpu}, and {limit}")
