"""What the stand-in for the driver answers for the faults that only the driver tells."""

from __future__ import annotations

from harness.devices.described import driver_tables as tables
from harness.devices.described.fault_tables import FaultTable
from harness.devices.described.nvml_errors import NVML_ERRORS

#: NVML's reasons for a lower clock: locked or application clocks, a power cap, the board's power brake.
_LOCKED, _POWER_CAP, _POWER_BRAKE = 0x2, 0x4, 0x88


def sensed_by_driver(fault: FaultTable) -> dict[str, object]:
    """Return the answers that a fault changes, by the keys of ``softgpu/driver_source/nvml.cc``."""
    if isinstance(fault, tables.NvlinkErrors):
        kind = tables.LINK_COUNTERS[fault.error]
        return {
            key: value
            for link in fault.links
            for key, value in (
                (f"nvlink_errors.{kind}.{link}", fault.old),
                (f"nvlink_errors_per_s.{kind}.{link}", fault.per_s),
            )
        }
    if isinstance(fault, tables.PowerBrake):
        return {"throttle": _POWER_BRAKE, "clock": int(fault.mhz)}
    if isinstance(fault, tables.ClockLock) and fault.clock == "memory":
        return {"memory_clock": int(fault.mhz)}
    if isinstance(fault, tables.ClockLock):
        return {"throttle": _LOCKED, "clock": int(fault.mhz)}
    if isinstance(fault, tables.PowerCap):
        return {"throttle": _POWER_CAP, "clock": int(fault.mhz), "power": int(fault.watts * 1000)}
    if isinstance(fault, tables.ThermalSample):
        return {"thermal_reading": fault.reading}
    if isinstance(fault, tables.RecoveryAction):
        return {"field.230": tables.RECOVERY_ACTIONS[fault.action]}
    if isinstance(fault, tables.EccOff):
        lacking = f"!{NVML_ERRORS['NVML_ERROR_NOT_SUPPORTED']}"
        return {"ecc_mode": 0, "ecc_corrected": lacking, "ecc_uncorrected": lacking}
    return {}
