"""Sensors: of NVIDIA's cards through NVML, of CPUs through the kernel. Which cards exist, ``devices.nvidia`` reads.

Each query may fail on its own, and its field is then ``None``. Only NOT_SUPPORTED says that a card lacks the sensor:
any other error is kept in ``details.failed``. No query needs privileges, and none starts CUDA.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from harness.devices.nvidia import open_nvml
from harness.hardware.machine import Details, Failure, Reading
from harness.records import Card

_T = TypeVar("_T")

#: NVML's names of the reasons for a lower clock, by their bits from 0; idling is one too (``nvml.h``:
#: ``nvmlClocksEventReason…``, which older releases call ``nvmlClocksThrottleReason…``).
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
#: NVML's errors: of what a card lacks, of a link or a field that this driver does not have, of a function that it does
#: not have, and where nothing has come in the time given.
_NOT_SUPPORTED, _NO_SUCH, _NO_FUNCTION, _TIMEOUT = 3, 2, 13, 10
#: The counters of an NVLink, by the end of the names of NVML's constants.
LINK_ERRORS = {"replay": "REPLAY", "recovery": "RECOVERY", "CRC flit error": "CRC_FLIT", "CRC data error": "CRC_DATA"}

#: What Linux's drivers call the sensor of a whole CPU: Intel, AMD, Arm boards, and ACPI as the last resort.
_CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz")


class Sensors:
    """Reads the sensors of ``cards`` by UUID. NVML is opened only if a card has one."""

    def __init__(self, cards: Iterable[Card]) -> None:
        self._cards = {card.label: card for card in cards}
        needed = any(card.uuid is not None for card in self._cards.values())
        self.nvml = Nvml.load() if needed else Nvml(None)

    def reading(self, label: str, at_s: float) -> Reading:
        """Read the sensors of a card."""
        card = self._cards[label]
        if card.uuid is not None:
            return self.nvml.reading(card.uuid, at_s)
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

    def __init__(self, module: Any) -> None:
        self._module = module
        self._handles: dict[str, Any] = {}
        self._events: dict[str, Any] = {}
        self._xids: dict[str, list[int]] = {}
        self._failed: dict[str, Failure] = {}

    @classmethod
    def load(cls) -> Nvml:
        """Open the library of this machine; without ``nvidia-ml-py`` or a driver, one that knows nothing."""
        return cls(open_nvml())

    @property
    def opened(self) -> bool:
        """Whether there is a driver."""
        return self._module is not None

    def driver_version(self) -> str | None:
        """Return the driver's version, such as ``550.54.15``."""
        answer = self._ask(lambda module: module.nvmlSystemGetDriverVersion())
        # Older releases of nvidia-ml-py return bytes.
        return answer.decode() if isinstance(answer, bytes) else answer

    def cuda_version(self) -> str | None:
        """Return the newest CUDA version that the driver supports, such as ``12.4``."""
        number = self._ask(lambda module: int(module.nvmlSystemGetCudaDriverVersion_v2()))
        return None if number is None else f"{number // 1000}.{number % 1000 // 10}"

    def reading(self, uuid: str, at_s: float) -> Reading:
        """Read the sensors of the card with this UUID."""
        self._failed = {}
        handle = self.handle(uuid)
        if handle is None:
            return Reading(at_s, details=Details(failed=self._failed))
        links = self._link_errors(handle, states := self._link_states(handle))
        return Reading(
            at_s=at_s,
            clock_mhz=self._number("clock_mhz", "ClockInfo", handle, "NVML_CLOCK_SM"),
            clock_max_mhz=self._number("clock_max_mhz", "MaxClockInfo", handle, "NVML_CLOCK_SM"),
            temperature_c=self._number("temperature_c", "Temperature", handle, "NVML_TEMPERATURE_GPU"),
            temperature_slowdown_c=self._number(
                "temperature_slowdown_c", "TemperatureThreshold", handle, "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"
            ),
            power_w=self._number("power_w", "PowerUsage", handle, scale=1e-3),
            power_limit_w=self._number("power_limit_w", "EnforcedPowerLimit", handle, scale=1e-3),
            utilization_percent=self._ask(
                lambda module: float(module.nvmlDeviceGetUtilizationRates(handle).gpu), "utilization_percent"
            ),
            throttle_reasons=self._throttle_reasons(handle),
            ecc_corrected=self._ecc(handle, "ecc_corrected", "NVML_MEMORY_ERROR_TYPE_CORRECTED"),
            ecc_uncorrected=self._ecc(handle, "ecc_uncorrected", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED"),
            **self._repairs(handle),
            pcie_generation=self._count("CurrPcieLinkGeneration", handle, "pcie_generation"),
            pcie_generation_max=self._count("MaxPcieLinkGeneration", handle, "pcie_generation_max"),
            pcie_width=self._count("CurrPcieLinkWidth", handle, "pcie_width"),
            pcie_width_max=self._count("MaxPcieLinkWidth", handle, "pcie_width_max"),
            pcie_replays=self._count("PcieReplayCounter", handle, "pcie_replays"),
            **self._nvlinks(handle, states, links),
            xid=self._xid(uuid, handle),
            details=self._details(handle, links),
        )

    @property
    def most_links(self) -> int:
        """The NVLinks that a card can have."""
        return int(getattr(self._module, "NVML_NVLINK_MAX_LINKS", 18))

    def field(self, handle: Any, name: str) -> int | None:
        """Return the value of a field, by the name of its number."""
        return self._ask(lambda module: _field(module, handle, name))

    def _number(self, sensor: str, query: str, handle: Any, constant: str = "", scale: float = 1.0) -> float | None:
        """Ask ``nvmlDeviceGet<query>``, with the value of a constant as its second argument."""

        def ask(module: Any) -> float:
            arguments = [getattr(module, constant)] if constant else []
            return float(getattr(module, f"nvmlDeviceGet{query}")(handle, *arguments)) * scale

        return self._ask(ask, sensor)

    def _count(self, query: str, handle: Any, sensor: str = "", absent: tuple[int, ...] = ()) -> int | None:
        return self._ask(lambda module: int(getattr(module, f"nvmlDeviceGet{query}")(handle)), sensor, absent)

    def handle(self, uuid: str) -> Any | None:
        """Return NVML's handle of the card, or of the card of a slice; ``None`` if it knows none."""
        if uuid not in self._handles:
            # Older releases of nvidia-ml-py accept only bytes.
            for name, sensor in ((uuid, ""), (uuid.encode(), "all sensors")):
                handle = self._ask(partial(_called, "nvmlDeviceGetHandleByUUID", name), sensor)
                if handle is not None:
                    if uuid.startswith("MIG-"):
                        # A slice has no sensors: those of its card count.
                        card = self.call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
                        handle = handle if card is None else card
                    self._handles[uuid] = handle
                    break
        return self._handles.get(uuid)

    def _throttle_reasons(self, handle: Any) -> tuple[str, ...] | None:
        for query, absent in (
            ("CurrentClocksEventReasons", (_NO_FUNCTION,)),
            ("CurrentClocksThrottleReasons", ()),  # older drivers
        ):
            mask = self._count(query, handle, "throttle_reasons", absent)
            if mask is not None:
                return tuple(name for bit, name in enumerate(_REASONS) if mask >> bit & 1)
        return None

    def _ecc(self, handle: Any, sensor: str, kind: str) -> int | None:
        """Return the errors since the driver was loaded: those of years ago say nothing of a card that was mended."""
        return self._ask(
            lambda module: int(
                module.nvmlDeviceGetTotalEccErrors(handle, getattr(module, kind), module.NVML_VOLATILE_ECC)
            ),
            sensor,
        )

    def _repairs(self, handle: Any) -> dict[str, Any]:
        rows = self._ask(lambda module: module.nvmlDeviceGetRemappedRows(handle), "remapped_rows")
        pages = self._ask(lambda module: len(module.nvmlDeviceGetRetiredPages(handle, 1)), "retired_pages")
        return {
            "remapped_rows": None if rows is None else int(rows[0]) + int(rows[1]),
            "remap_pending": None if rows is None else bool(rows[2]),
            "remap_failed": None if rows is None else bool(rows[3]),
            "retired_pages": pages,
            "retired_pending": self._ask(
                lambda module: bool(module.nvmlDeviceGetRetiredPagesPendingStatus(handle)), "retired_pages"
            ),
            "recovery_action": self.field(handle, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"),
        }

    def _link_states(self, handle: Any) -> list[int]:
        states = []
        for link in range(self.most_links):
            query = partial(_called, "nvmlDeviceGetNvLinkState", handle, link)
            state = self._ask(query, "nvlinks_active", (_NO_SUCH,))
            if state is not None:
                states.append(int(state))
        return states

    def _nvlinks(self, handle: Any, states: list[int], links: dict[tuple[int, str], int]) -> dict[str, Any]:
        """Count the links, and the active ones; nothing for a card without links."""
        if not states:
            return {}
        resent = [count for (_, kind), count in links.items() if kind in ("replay", "recovery")]
        return {
            "nvlinks_active": sum(state == 1 for state in states),  # NVML_FEATURE_ENABLED
            "nvlinks_total": len(states),
            "nvlink_gbs": self.nvlink_gbs(handle),
            "nvlink_errors": sum(resent) if resent else None,
        }

    def nvlink_gbs(self, handle: Any) -> float | None:
        """Return the rate of a link of the card one way, in GB/s."""
        speed = self.field(handle, "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON")
        return speed / 1000 if speed else None

    def _link_errors(self, handle: Any, states: list[int]) -> dict[tuple[int, str], int]:
        """Count by link and kind what the links resent, how often they were trained again, and errors of their CRC."""
        counts: dict[tuple[int, str], int] = {}
        for kind, name in LINK_ERRORS.items():
            number = getattr(self._module, f"NVML_NVLINK_ERROR_DL_{name}", None)
            for link in range(len(states)) if number is not None else ():
                query = partial(_called, "nvmlDeviceGetNvLinkErrorCounter", handle, link, number)
                count = self._ask(query, "nvlink_errors", (_NO_SUCH,))
                if count is None:
                    break  # no link of the card has this counter
                counts[link, kind] = int(count)
        return counts

    def _details(self, handle: Any, links: dict[tuple[int, str], int]) -> Details:
        default = self._ask(lambda module: module.nvmlDeviceGetPowerManagementDefaultLimit(handle) * 1e-3)
        return Details(
            ecc_on=self._ask(lambda module: bool(module.nvmlDeviceGetEccMode(handle)[0])),
            persistent=self._ask(lambda module: bool(module.nvmlDeviceGetPersistenceMode(handle))),
            memory_clock_mhz=self._memory_clock("ClockInfo", handle),
            memory_clock_max_mhz=self._memory_clock("MaxClockInfo", handle),
            power_default_w=default,
            shares_memory=self._lacks_memory(handle),
            fabric=self._ask(lambda module: _fabric(module, handle)),
            links=links,
            failed=self._failed,
        )

    def _memory_clock(self, query: str, handle: Any) -> float | None:
        # Without the name of a sensor: the clock of the multiprocessors has the errors of this function.
        return self._ask(lambda module: float(getattr(module, f"nvmlDeviceGet{query}")(handle, module.NVML_CLOCK_MEM)))

    def _lacks_memory(self, handle: Any) -> bool:
        try:
            self._module.nvmlDeviceGetMemoryInfo(handle)
        except self._module.NVMLError as error:
            return getattr(error, "value", None) == _NOT_SUPPORTED
        return False

    def _xid(self, uuid: str, handle: Any) -> tuple[int, ...] | None:
        """Return the critical errors since the first reading; ``None`` if the driver does not report any."""
        if uuid not in self._events:
            self._events[uuid] = self._ask(lambda module: _register(module, handle), "xid")
            self._xids[uuid] = []
        events = self._events[uuid]
        if events is None:
            return None
        known = self._xids[uuid]
        while True:
            try:
                event = self._module.nvmlEventSetWait_v2(events, 0)
            except self._module.NVMLError as error:
                # With a wait of 0 ms, no further event is an error (timeout).
                if getattr(error, "value", None) != _TIMEOUT:
                    self._fails("xid", error)
                    return tuple(known) or None
                return tuple(known)
            if not int(event.eventType) & int(self._module.nvmlEventTypeXidCriticalError):
                return tuple(known)
            known.append(int(event.eventData))

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function of NVML; ``None`` if it fails."""
        return self._ask(partial(_called, function, *arguments))

    def _ask(self, query: Callable[[Any], _T], sensor: str = "", absent: tuple[int, ...] = ()) -> _T | None:
        """Answer a query, with ``None`` if this driver, card or release of nvidia-ml-py cannot.

        An error is kept under the name of the ``sensor``, unless it says that there is none: NOT_SUPPORTED, or a number
        in ``absent``.
        """
        module = self._module
        if module is None:
            return None
        try:
            return query(module)
        except module.NVMLError as error:
            if sensor and getattr(error, "value", None) not in (_NOT_SUPPORTED, *absent):
                self._fails(sensor, error)
            return None
        except (AttributeError, TypeError, ValueError):
            return None

    def _fails(self, sensor: str, error: Exception) -> None:
        self._failed[sensor] = Failure(int(getattr(error, "value", 0) or 0), str(error))


def _called(*call: Any) -> Any:
    """Call a function of NVML: its name, its arguments, and the module."""
    function, *arguments, module = call
    return getattr(module, function)(*arguments)


def _fabric(module: Any, handle: Any) -> int:
    info = module.c_nvmlGpuFabricInfo_t()
    module.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(info))
    return int(info.state)


def _field(module: Any, handle: Any, name: str) -> int | None:
    (field,) = module.nvmlDeviceGetFieldValues(handle, [getattr(module, name)])
    return int(field.value.uiVal) if field.nvmlReturn == 0 else None


def _register(module: Any, handle: Any) -> Any:
    events = module.nvmlEventSetCreate()
    try:
        module.nvmlDeviceRegisterEvents(handle, module.nvmlEventTypeXidCriticalError, events)
    except module.NVMLError:
        module.nvmlEventSetFree(events)
        raise
    return events
