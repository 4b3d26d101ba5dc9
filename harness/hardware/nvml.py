"""Sensors: of NVIDIA's cards through NVML, of CPUs through the kernel. Which cards exist, ``devices.nvidia`` reads.

Each query may fail on its own (a card without ECC, a driver in a container that refuses one); its field is then
``None``. No query needs privileges, and none starts CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from harness.hardware.machine import Reading
from harness.records import Card

_T = TypeVar("_T")

#: NVML's names of the reasons for a lower clock; idling is one too. Older releases of nvidia-ml-py have
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


#: What Linux's drivers call the sensor of a whole CPU: Intel, AMD, Arm boards, and ACPI as the last resort.
_CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz")


class Sensors:
    """Reads the sensors of ``cards`` by UUID. NVML is opened only if a card has one."""

    def __init__(self, cards: Iterable[Card], nvml: Nvml | None = None) -> None:
        self._cards = {card.label: card for card in cards}
        needed = any(card.uuid is not None for card in self._cards.values())
        self._nvml = nvml if nvml is not None else Nvml.load() if needed else Nvml(None)

    def reading(self, label: str, at_s: float) -> Reading:
        """Read the sensors of a card."""
        card = self._cards[label]
        if card.uuid is not None:
            return self._nvml.reading(card.uuid, at_s)
        # The servers of cores:N are on this host too; nothing is known of other hosts.
        here = card.shares_threads or label.startswith("core/")
        return cpu_reading(at_s) if here else Reading(at_s)


def cpu_reading(at_s: float) -> Reading:
    """Read the clock (mean of all CPUs), temperature (hottest) and utilization of this host, as far as known."""
    import psutil

    clock = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    sensors = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    of_cpu = next((sensors[name] for name in _CPU_SENSORS if sensors.get(name)), ())
    temperatures = [each.current for each in of_cpu if each.current]
    slowdown = [each.high for each in of_cpu if each.high]
    return Reading(
        at_s=at_s,
        # In many virtual machines the kernel says 0, which is not a clock.
        clock_mhz=float(clock.current) if clock is not None and clock.current else None,
        clock_max_mhz=float(clock.max) if clock is not None and clock.max else None,
        temperature_c=float(max(temperatures)) if temperatures else None,
        temperature_slowdown_c=float(min(slowdown)) if slowdown else None,
        utilization_percent=float(psutil.cpu_percent(interval=None)),
    )


class Nvml:
    """The open library. ``module`` is ``pynvml``; ``None`` answers every query with ``None``."""

    def __init__(self, module: Any | None) -> None:
        self._module = module
        self._handles: dict[str, Any] = {}
        self._events: dict[str, Any] = {}
        self._xids: dict[str, list[int]] = {}

    @classmethod
    def load(cls) -> Nvml:
        """Open the library of this machine; without ``nvidia-ml-py`` or a driver, one that knows nothing."""
        try:
            import pynvml
        except ImportError:
            return cls(None)
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return cls(None)
        return cls(pynvml)

    def driver_version(self) -> str | None:
        """Return the driver's version, such as ``550.54.15``."""
        module = self._module
        return None if module is None else self._text(lambda: module.nvmlSystemGetDriverVersion())

    def cuda_version(self) -> str | None:
        """Return the newest CUDA version that the driver supports, such as ``12.4``."""
        module = self._module
        if module is None:
            return None
        number = self._ask(lambda: int(module.nvmlSystemGetCudaDriverVersion_v2()))
        return None if number is None else f"{number // 1000}.{number % 1000 // 10}"

    def reading(self, uuid: str, at_s: float) -> Reading:
        """Read the sensors of the card with this UUID."""
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
        """Return the bit of a reason; nvidia-ml-py has those of hardware reasons only with the older prefix."""
        for each in (prefix, "nvmlClocksThrottleReason"):
            bit = getattr(self._module, f"{each}{name}", None)
            if bit is not None:
                return int(bit)
        return None

    def _ecc(self, handle: Any, kind: str) -> int | None:
        """Return the aggregate count of errors, which outlasts a restart of the driver."""
        module = self._module
        assert module is not None
        return self._ask(
            lambda: int(module.nvmlDeviceGetTotalEccErrors(handle, getattr(module, kind), module.NVML_AGGREGATE_ECC))
        )

    def _nvlinks(self, handle: Any) -> dict[str, int | None]:
        """Count the links, and the active ones; ``None`` for a card without links."""
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
        """Return the critical errors since the first reading; ``None`` if the driver does not report any."""
        module = self._module
        assert module is not None
        if uuid not in self._events:
            self._events[uuid] = self._ask(lambda: _register(module, handle))
            self._xids[uuid] = []
        events = self._events[uuid]
        if events is None:
            return None
        while True:
            # With a wait of 0 ms, no further event is an error (timeout).
            event = self._ask(lambda: module.nvmlEventSetWait_v2(events, 0))
            if event is None or not int(event.eventType) & int(module.nvmlEventTypeXidCriticalError):
                return tuple(self._xids[uuid])
            self._xids[uuid].append(int(event.eventData))

    def _text(self, question: Callable[[], str | bytes]) -> str | None:
        """Decode what older releases of nvidia-ml-py return as bytes."""
        answer = self._ask(question)
        return answer.decode() if isinstance(answer, bytes) else answer

    def _ask(self, question: Callable[[], _T]) -> _T | None:
        """Answer a query, with ``None`` if this driver, card or release of nvidia-ml-py cannot."""
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
