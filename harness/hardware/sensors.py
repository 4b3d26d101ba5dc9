"""The sensors of the cards of a machine: NVML's for GPUs, the kernel's for CPUs."""

from __future__ import annotations

from collections.abc import Iterable

from harness.hardware.nvml import Nvml
from harness.hardware.telemetry import Reading
from harness.records import Card

#: What Linux's drivers call the sensor of a whole CPU: Intel, AMD, Arm boards, and ACPI as the last resort.
_CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz")


class Sensors:
    """Reads the sensors of ``cards`` by UUID. Nothing is opened where no card has one."""

    def __init__(self, cards: Iterable[Card], nvml: Nvml | None = None) -> None:
        self._uuids = {card.label: card.uuid for card in cards}
        needed = any(uuid is not None for uuid in self._uuids.values())
        self._nvml = nvml if nvml is not None else Nvml.load() if needed else Nvml(None)

    def reading(self, label: str, at_s: float) -> Reading:
        """What the sensors of a card say now."""
        uuid = self._uuids[label]
        if uuid is not None:
            return self._nvml.reading(uuid, at_s)
        # The servers of cores:N are on this host too; of other hosts nothing is known.
        return cpu_reading(at_s) if label.startswith(("CPU:", "core/")) else Reading(at_s)


def cpu_reading(at_s: float) -> Reading:
    """The clock (mean of all CPUs), temperature (hottest) and use of this host, as far as the kernel tells."""
    import psutil

    clock = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    sensors = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    of_cpu = next((sensors[name] for name in _CPU_SENSORS if sensors.get(name)), ())
    temperatures = [each.current for each in of_cpu if each.current]
    slowdown = [each.high for each in of_cpu if each.high]
    return Reading(
        at_s=at_s,
        # In many virtual machines the kernel says 0, which is no clock.
        clock_mhz=float(clock.current) if clock is not None and clock.current else None,
        clock_max_mhz=float(clock.max) if clock is not None and clock.max else None,
        temperature_c=float(max(temperatures)) if temperatures else None,
        temperature_slowdown_c=float(min(slowdown)) if slowdown else None,
        utilization_percent=float(psutil.cpu_percent(interval=None)),
    )
