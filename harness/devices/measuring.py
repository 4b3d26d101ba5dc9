"""Which devices a measurement of speed takes, where nobody says which."""

from __future__ import annotations

from dataclasses import dataclass

from harness.devices.cores import allowed_cpu_time
from harness.devices.inventory import Inventory, read_inventory


@dataclass(frozen=True, slots=True)
class MeasuringSpec:
    """A device spec, and why it is the one to measure on, in a sentence without its full stop."""

    spec: str
    reason: str

    def __str__(self) -> str:
        return self.spec


def measuring_spec(inventory: Inventory | None = None, cpu_time: float | None = None) -> MeasuringSpec:
    """What ``auto`` is for a measurement: two or more real GPUs, else all physical cores as ``cores:N``.

    One GPU is never taken: what shares a card shares its arithmetic units. TensorFlow is loaded and its runtime not
    started, unless ``inventory`` (what is there) is given; ``cpu_time`` is how many CPUs' worth of time this process
    may take (``None`` without a limit), and is looked up together with the inventory.
    """
    if inventory is None:
        import tensorflow as tf

        inventory, cpu_time = read_inventory(tf), allowed_cpu_time()
    gpus, cores = len(inventory.gpus), len(inventory.cores)
    if gpus >= 2:
        return MeasuringSpec("gpu", f"a measurement takes gpu, because {gpus} real GPUs are here")
    count, limit = max(cores, 1), f"this process may use {cores} physical core{'' if cores == 1 else 's'}"
    if cpu_time is not None and int(cpu_time) < count:
        count, limit = max(int(cpu_time), 1), f"this process may take the time of {cpu_time:g} CPUs"
    gpu = "no GPU is here" if gpus == 0 else "devices that share the one GPU that is here show no speedup"
    return MeasuringSpec(f"cores:{count}", f"a measurement takes cores:{count}, because {gpu} and {limit}")
