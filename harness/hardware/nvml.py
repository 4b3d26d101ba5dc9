"""What NVIDIA's management library says of cards: which there are, and what their sensors read.

Each question may fail on its own (a card without ECC, a driver in a container that refuses one): then that field is
``None``. No question needs more rights than a user has, and none starts CUDA.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from harness.hardware.telemetry import Reading

_T = TypeVar("_T")

#: NVML's names of the reasons for a lower clock. Idle is one too, and is no fault; older releases of nvidia-ml-py have
#: ``nvmlClocksThrottleReason…`` for what newer ones call ``nvmlClocksEventReason…``.
_REASONS = (
    "GpuIdle",
    "ApplicationsClocksSetting",
    "SwPowerCap",
    "HwSlowdown",
    "SyncBoost",
    "SwThermalSlowdown",
    "HwThermalSlowdown",
    "HwPowerBrakeSlowdown",
    "DisplayClockSetting",
)


@dataclass(frozen=True, slots=True)
class DriverCard:
    """One card as the driver knows it, in the driver's order."""

    index: int
    name: str
    uuid: str
    pci: str | None = None
    memory_bytes: int | None = None


class Nvml:
    """The library, opened. ``module`` is ``pynvml``, or for tests something that has its functions."""

    def __init__(self, module: Any | None) -> None:
        self._module = module
        self._handles: dict[str, Any] = {}
        self._events: dict[str, Any] = {}
        self._xids: dict[str, list[int]] = {}

    @classmethod
    def load(cls) -> Nvml:
        """The library of this machine; one that knows no card where there is no ``nvidia-ml-py`` or no driver."""
        try:
            import pynvml
        except ImportError:
            return cls(None)
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return cls(None)
        return cls(pynvml)

    def cards(self) -> tuple[DriverCard, ...]:
        """The cards in the driver's order. One that has fallen off the bus and answers nothing is left out."""
        module = self._module
        if module is None:
            return ()
        found = []
        for index in range(self._ask(lambda: int(module.nvmlDeviceGetCount())) or 0):
            handle = self._ask(lambda index=index: module.nvmlDeviceGetHandleByIndex(index))  # type: ignore[misc]
            uuid = self._text(lambda handle=handle: module.nvmlDeviceGetUUID(handle))  # type: ignore[misc]
            if handle is None or uuid is None:
                continue
            found.append(
                DriverCard(
                    index=index,
                    name=self._text(lambda handle=handle: module.nvmlDeviceGetName(handle)) or "GPU",  # type: ignore[misc]
                    uuid=uuid,
                    pci=self._pci(handle),
                    memory_bytes=self._ask(lambda handle=handle: int(module.nvmlDeviceGetMemoryInfo(handle).total)),  # type: ignore[misc]
                )
            )
        return tuple(found)

    def driver_version(self) -> str | None:
        """The driver's version, such as ``550.54.15``."""
        module = self._module
        return None if module is None else self._text(lambda: module.nvmlSystemGetDriverVersion())

    def cuda_version(self) -> str | None:
        """The newest CUDA that the driver can run, such as ``12.4``."""
        module = self._module
        if module is None:
            return None
        number = self._ask(lambda: int(module.nvmlSystemGetCudaDriverVersion_v2()))
        return None if number is None else f"{number // 1000}.{number % 1000 // 10}"

    def reading(self, uuid: str, at_s: float) -> Reading:
        """The sensors of the card with this UUID."""
        handle = self._handle(uuid)
        if handle is None:
            return Reading(at_s)
        ask, module = self._ask, self._module
        assert module is not None
        return Reading(
            at_s=at_s,
            clock_mhz=ask(lambda: float(module.nvmlDeviceGetClockInfo(handle, module.NVML_CLOCK_SM))),
            clock_max_mhz=ask(lambda: float(module.nvmlDeviceGetMaxClockInfo(handle, module.NVML_CLOCK_SM))),
            temperature_c=ask(lambda: float(module.nvmlDeviceGetTemperature(handle, module.NVML_TEMPERATURE_GPU))),
            temperature_slowdown_c=ask(
                lambda: float(
                    module.nvmlDeviceGetTemperatureThreshold(handle, module.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
                )
            ),
            power_w=ask(lambda: module.nvmlDeviceGetPowerUsage(handle) / 1e3),
            power_limit_w=ask(lambda: module.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3),
            utilization_percent=ask(lambda: float(module.nvmlDeviceGetUtilizationRates(handle).gpu)),
            throttle_reasons=self._throttle_reasons(handle),
            ecc_corrected=self._ecc(handle, "NVML_MEMORY_ERROR_TYPE_CORRECTED"),
            ecc_uncorrected=self._ecc(handle, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED"),
            remapped_rows=ask(lambda: sum(int(rows) for rows in module.nvmlDeviceGetRemappedRows(handle)[:2])),
            pcie_generation=ask(lambda: int(module.nvmlDeviceGetCurrPcieLinkGeneration(handle))),
            pcie_generation_max=ask(lambda: int(module.nvmlDeviceGetMaxPcieLinkGeneration(handle))),
            pcie_width=ask(lambda: int(module.nvmlDeviceGetCurrPcieLinkWidth(handle))),
            pcie_width_max=ask(lambda: int(module.nvmlDeviceGetMaxPcieLinkWidth(handle))),
            pcie_replays=ask(lambda: int(module.nvmlDeviceGetPcieReplayCounter(handle))),
            **self._nvlinks(handle),
            xid=self._xid(uuid, handle),
        )

    def _handle(self, uuid: str) -> Any | None:
        module = self._module
        if module is None:
            return None
        if uuid not in self._handles:
            # Older releases of nvidia-ml-py take bytes alone.
            handle = self._ask(lambda: module.nvmlDeviceGetHandleByUUID(uuid))
            if handle is None:
                handle = self._ask(lambda: module.nvmlDeviceGetHandleByUUID(uuid.encode()))
            if handle is None:
                return None
            self._handles[uuid] = handle
        return self._handles[uuid]

    def _throttle_reasons(self, handle: Any) -> tuple[str, ...] | None:
        module = self._module
        for question, prefix in (
            ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlClocksEventReason"),
            ("nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlClocksThrottleReason"),
        ):
            mask = self._ask(lambda question=question: int(getattr(module, question)(handle)))  # type: ignore[misc]
            if mask is None:
                continue
            names = ((name, self._reason_bit(prefix, name)) for name in _REASONS)
            return tuple(name for name, bit in names if bit is not None and mask & bit)
        return None

    def _reason_bit(self, prefix: str, name: str) -> int | None:
        """nvidia-ml-py gives the bits of hardware reasons by the older prefix alone."""
        for each in (prefix, "nvmlClocksThrottleReason"):
            bit = getattr(self._module, f"{each}{name}", None)
            if bit is not None:
                return int(bit)
        return None

    def _ecc(self, handle: Any, kind: str) -> int | None:
        """Errors since the card was made (aggregate): they outlast a restart of the driver."""
        module = self._module
        assert module is not None
        return self._ask(
            lambda: int(module.nvmlDeviceGetTotalEccErrors(handle, getattr(module, kind), module.NVML_AGGREGATE_ECC))
        )

    def _nvlinks(self, handle: Any) -> dict[str, int | None]:
        """How many links are active of those that the card answers for; ``None`` where it has none."""
        module = self._module
        assert module is not None
        states = []
        for link in range(int(getattr(module, "NVML_NVLINK_MAX_LINKS", 18))):
            state = self._ask(lambda link=link: int(module.nvmlDeviceGetNvLinkState(handle, link)))  # type: ignore[misc]
            if state is not None:
                states.append(state)
        if not states:
            return {"nvlinks_active": None, "nvlinks_total": None}
        active = getattr(module, "NVML_FEATURE_ENABLED", 1)
        return {"nvlinks_active": sum(state == active for state in states), "nvlinks_total": len(states)}

    def _xid(self, uuid: str, handle: Any) -> tuple[int, ...] | None:
        """Critical errors that the driver has told of since the first reading; ``None`` where it tells of none."""
        module = self._module
        assert module is not None
        if uuid not in self._events:
            self._events[uuid] = self._ask(lambda: _register(module, handle))
            self._xids[uuid] = []
        events = self._events[uuid]
        if events is None:
            return None
        while True:
            # Waiting 0 ms: what is not there yet is an error (timeout), and so the end.
            event = self._ask(lambda: module.nvmlEventSetWait_v2(events, 0))
            if event is None or not int(event.eventType) & int(module.nvmlEventTypeXidCriticalError):
                return tuple(self._xids[uuid])
            self._xids[uuid].append(int(event.eventData))

    def _pci(self, handle: Any) -> str | None:
        module = self._module
        assert module is not None
        found = self._text(lambda: module.nvmlDeviceGetPciInfo(handle).busId)
        return None if found is None else short_bus_id(found)

    def _text(self, question: Callable[[], str | bytes]) -> str | None:
        """Older releases of nvidia-ml-py answer in bytes."""
        answer = self._ask(question)
        return answer.decode() if isinstance(answer, bytes) else answer

    def _ask(self, question: Callable[[], _T]) -> _T | None:
        """An answer, or ``None`` where this driver, card or release of nvidia-ml-py has none."""
        module = self._module
        if module is None:
            return None
        try:
            return question()
        except (module.NVMLError, AttributeError, TypeError, ValueError):
            return None


def _register(module: Any, handle: Any) -> Any:
    events = module.nvmlEventSetCreate()
    try:
        module.nvmlDeviceRegisterEvents(handle, module.nvmlEventTypeXidCriticalError, events)
    except module.NVMLError:
        module.nvmlEventSetFree(events)
        raise
    return events


def short_bus_id(text: str) -> str:
    """NVML's ``00000000:3B:00.0`` as the kernel and everybody else write it: ``0000:3B:00.0``."""
    domain, separator, rest = text.partition(":")
    return f"{domain[-4:]}{separator}{rest}" if separator and len(domain) > 4 else text
