"""A ``pynvml`` of made-up cards, for tests of what is read from NVIDIA's management library."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

UUIDS = ("GPU-00000000-0000-0000-0000-000000000011", "GPU-00000000-0000-0000-0000-00000000002a")


class NVMLError(Exception):
    """The root of the library's errors."""

    value = 3


def refuse(*_: object) -> Any:
    """A question that the driver does not answer."""
    raise NVMLError("Not Supported")


def time_out(*_: object) -> Any:
    """A wait in which nothing has come."""
    error = NVMLError("Timeout")
    error.value = 10
    raise error


def fake_nvml(**changes: Any) -> SimpleNamespace:
    """Two cards; a handle is the index. ``changes`` put other functions or constants in place."""
    events = [SimpleNamespace(eventType=8, eventData=79), SimpleNamespace(eventType=8, eventData=63)]

    def wait(event_set: object, timeout_ms: int) -> Any:
        assert timeout_ms == 0
        return events.pop(0) if events else time_out()

    known: dict[str, Any] = {
        "NVMLError": NVMLError,
        "NVML_CLOCK_SM": 1,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN": 1,
        "NVML_MEMORY_ERROR_TYPE_CORRECTED": 0,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
        "NVML_NVLINK_MAX_LINKS": 18,
        "nvmlEventTypeXidCriticalError": 8,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetHandleByUUID": lambda uuid: UUIDS.index(uuid),
        "nvmlDeviceGetName": lambda handle: b"NVIDIA H100 80GB HBM3" if handle else "NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetUUID": lambda handle: UUIDS[handle],
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=85_000_000_000, free=84_000_000_000),
        "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(busId=f"00000000:{0x3B + handle:02X}:00.0".encode()),
        "nvmlSystemGetDriverVersion": lambda: "550.54.15",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 12040,
        "nvmlDeviceGetClockInfo": lambda handle, clock: 1755,
        "nvmlDeviceGetMaxClockInfo": lambda handle, clock: 1980,
        "nvmlDeviceGetTemperature": lambda handle, sensor: 64,
        "nvmlDeviceGetTemperatureThreshold": lambda handle, threshold: 87,
        "nvmlDeviceGetPowerUsage": lambda handle: 523_400,
        "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=97, memory=40),
        "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 0x4 | 0x8,
        "nvmlDeviceGetTotalEccErrors": lambda handle, kind, counter: 3 if kind == 0 else 0,
        "nvmlDeviceGetRemappedRows": lambda handle: (1, 2, 0, 0),
        "nvmlDeviceGetRetiredPages": lambda handle, cause: [],
        "nvmlDeviceGetRetiredPagesPendingStatus": lambda handle: 0,
        "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": 230,
        "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON": 90,
        "nvmlDeviceGetFieldValues": lambda handle, ids: [
            SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal={90: 26_562}.get(each, 0))) for each in ids
        ],
        "nvmlDeviceGetCurrPcieLinkGeneration": lambda handle: 5,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda handle: 5,
        "nvmlDeviceGetCurrPcieLinkWidth": lambda handle: 4,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda handle: 16,
        "nvmlDeviceGetPcieReplayCounter": lambda handle: 7,
        "nvmlDeviceGetNvLinkState": lambda handle, link: refuse() if link >= 4 else int(link != 3),
        "NVML_NVLINK_ERROR_DL_REPLAY": 0,
        "NVML_NVLINK_ERROR_DL_RECOVERY": 1,
        "nvmlDeviceGetNvLinkErrorCounter": lambda handle, link, kind: link if kind == 0 else 0,
        "nvmlEventSetCreate": lambda: "events",
        "nvmlDeviceRegisterEvents": lambda handle, kinds, event_set: None,
        "nvmlEventSetFree": lambda event_set: None,
        "nvmlEventSetWait_v2": wait,
    }
    return SimpleNamespace(**{**known, **changes})
