"""Sensors: of NVIDIA's cards through NVML, of CPUs through the kernel. Which cards exist, ``devices.nvidia`` reads.

Each query may fail on its own, and its field is then ``None``. Only NOT_SUPPORTED, and for ECC its form in virtual
machines, says that a card lacks the sensor: any other error is kept in ``details.failed``. No query needs privileges,
and none starts CUDA.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from harness.devices.nvml import LACKING, NO_FUNCTION, NO_SUCH, NOT_SUPPORTED, OTHER_VERSION, TIMEOUT, Library, Refused
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
#: NVML's query for counts of errors in memory.
_ECC = "TotalEccErrors"
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


class Nvml(Library):
    """The open library, with the sensors of cards by UUID. ``module`` is ``pynvml``, or ``None`` without a driver."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._handles: dict[str, Any] = {}
        self._events: dict[str, Any] = {}
        self._xids: dict[str, list[int]] = {}
        self._failed: dict[str, Failure] = {}

    def driver_version(self) -> str | None:
        """Return the driver's version, such as ``550.54.15``."""
        version: str | None = self.call("nvmlSystemGetDriverVersion")
        return version

    def cuda_version(self) -> str | None:
        """Return the newest CUDA version that the driver supports, such as ``12.4``."""
        number = self.call("nvmlSystemGetCudaDriverVersion_v2")
        return None if number is None else f"{number // 1000}.{number % 1000 // 10}"

    def reading(self, uuid: str, at_s: float) -> Reading:
        """Read the sensors of the card with this UUID."""
        self._failed = {}
        handle = self.handle(uuid)
        if handle is None:
            return Reading(at_s, details=Details(failed=self._failed))
        get = partial(self._get, handle)
        links = self._link_errors(handle, states := self._link_states(handle))
        return Reading(
            at_s=at_s,
            clock_mhz=get("clock_mhz", "ClockInfo", "NVML_CLOCK_SM"),
            clock_max_mhz=get("clock_max_mhz", "MaxClockInfo", "NVML_CLOCK_SM"),
            temperature_c=get("temperature_c", "Temperature", "NVML_TEMPERATURE_GPU"),
            temperature_slowdown_c=get(
                "temperature_slowdown_c", "TemperatureThreshold", "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"
            ),
            power_w=get("power_w", "PowerUsage", of=_watts),
            power_limit_w=get("power_limit_w", "EnforcedPowerLimit", of=_watts),
            utilization_percent=get("utilization_percent", "UtilizationRates", of=lambda rates: float(rates.gpu)),
            throttle_reasons=self._throttle_reasons(handle),
            # Since the driver was loaded: those of years ago say nothing of a card that was mended.
            ecc_corrected=get("ecc_corrected", _ECC, "NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_VOLATILE_ECC", of=int),
            ecc_uncorrected=get(
                "ecc_uncorrected", _ECC, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC", of=int
            ),
            **self._repairs(handle),
            pcie_generation=get("pcie_generation", "CurrPcieLinkGeneration", of=int),
            pcie_generation_max=get("pcie_generation_max", "MaxPcieLinkGeneration", of=int),
            pcie_width=get("pcie_width", "CurrPcieLinkWidth", of=int),
            pcie_width_max=get("pcie_width_max", "MaxPcieLinkWidth", of=int),
            pcie_replays=get("pcie_replays", "PcieReplayCounter", of=int),
            **self._nvlinks(handle, states, links),
            xid=self._xid(uuid, handle),
            details=self._details(handle, links),
        )

    @property
    def most_links(self) -> int:
        """The NVLinks that a card can have."""
        return int(getattr(self._module, "NVML_NVLINK_MAX_LINKS", 18))

    def field(self, handle: Any, name: str, sensor: str) -> int | None:
        """Return the value of a field, by the name of its number. An error of the whole query is the ``sensor``'s."""
        return self._ask(sensor, lambda: self._field(handle, name), (NO_SUCH, NO_FUNCTION))

    def _field(self, handle: Any, name: str) -> int | None:
        (field,) = self.ask("nvmlDeviceGetFieldValues", handle, [self.constant(name)])
        return int(field.value.uiVal) if field.nvmlReturn == 0 else None

    def handle(self, uuid: str) -> Any | None:
        """Return NVML's handle of the card, or of the card of a slice; ``None`` if it knows none."""
        if uuid not in self._handles:
            # Older releases of nvidia-ml-py accept only bytes.
            for name, sensor in ((uuid, ""), (uuid.encode(), "all sensors")):
                handle = self._get(name, sensor, "HandleByUUID", of=lambda handle: handle)
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
            ("CurrentClocksEventReasons", (NO_FUNCTION,)),
            ("CurrentClocksThrottleReasons", ()),  # older drivers
        ):
            mask = self._get(handle, "throttle_reasons", query, absent=absent, of=int)
            if mask is not None:
                return tuple(name for bit, name in enumerate(_REASONS) if mask >> bit & 1)
        return None

    def _repairs(self, handle: Any) -> dict[str, Any]:
        rows = self._get(handle, "remapped_rows", "RemappedRows", of=tuple)
        return {
            "remapped_rows": None if rows is None else int(rows[0]) + int(rows[1]),
            "remap_pending": None if rows is None else bool(rows[2]),
            "remap_failed": None if rows is None else bool(rows[3]),
            "retired_pages": self._get(handle, "retired_pages", "RetiredPages", 1, of=len),
            "retired_pending": self._get(handle, "retired_pages", "RetiredPagesPendingStatus", of=bool),
            "recovery_action": self.field(handle, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", "recovery_action"),
        }

    def _link_states(self, handle: Any) -> list[int]:
        links = range(self.most_links)
        states = [self._get(handle, "nvlinks_active", "NvLinkState", n, absent=(NO_SUCH,), of=int) for n in links]
        return [state for state in states if state is not None]

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
        speed = self.field(handle, "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON", "nvlink_gbs")
        return speed / 1000 if speed else None

    def _link_errors(self, handle: Any, states: list[int]) -> dict[tuple[int, str], int]:
        """Count by link and kind what the links resent, how often they were trained again, and errors of their CRC."""
        counts: dict[tuple[int, str], int] = {}
        for kind, name in LINK_ERRORS.items():
            number = getattr(self._module, f"NVML_NVLINK_ERROR_DL_{name}", None)
            for link in range(len(states)) if number is not None else ():
                count = self._get(
                    handle, "nvlink_errors", "NvLinkErrorCounter", link, number, absent=(NO_SUCH,), of=int
                )
                if count is None:
                    break  # no link of the card has this counter
                counts[link, kind] = count
        return counts

    def _details(self, handle: Any, links: dict[tuple[int, str], int]) -> Details:
        # Older drivers lack some of these functions. The clocks of the memory fail as those of ``reading``.
        get = partial(self._get, handle, absent=(NO_FUNCTION,))
        fabric = (NO_SUCH, NO_FUNCTION, OTHER_VERSION)
        return Details(
            ecc_on=get("ecc_mode", "EccMode", of=lambda modes: bool(modes[0])),
            persistent=get("persistence_mode", "PersistenceMode", of=bool),
            memory_clock_mhz=get("clock_mhz", "ClockInfo", "NVML_CLOCK_MEM"),
            memory_clock_max_mhz=get("clock_max_mhz", "MaxClockInfo", "NVML_CLOCK_MEM"),
            power_default_w=get("power_default_w", "PowerManagementDefaultLimit", of=_watts),
            shares_memory=self._shares_memory(handle),
            fabric=self._ask("fabric", lambda: self._fabric(handle), fabric),
            links=links,
            failed=self._failed,
        )

    def _shares_memory(self, handle: Any) -> bool:
        try:
            self.ask("nvmlDeviceGetMemoryInfo", handle)
        except Refused as error:
            return error.code == NOT_SUPPORTED
        return False

    def _fabric(self, handle: Any) -> int:
        info = self.constant("c_nvmlGpuFabricInfo_t")()
        self.ask("nvmlDeviceGetGpuFabricInfo", handle, ctypes.byref(info))
        return int(info.state)

    def _xid(self, uuid: str, handle: Any) -> tuple[int, ...] | None:
        """Return the critical errors since the first reading; ``None`` if the driver does not report any."""
        if uuid not in self._events:
            self._events[uuid] = self._ask("xid", lambda: self._register(handle))
            self._xids[uuid] = []
        events = self._events[uuid]
        if events is None:
            return None
        known = self._xids[uuid]
        while True:
            try:
                event = self.ask("nvmlEventSetWait_v2", events, 0)
            except Refused as error:
                # With a wait of 0 ms, no further event is an error (timeout).
                if error.code != TIMEOUT:
                    self._fails("xid", error)
                    return tuple(known) or None
                return tuple(known)
            if not int(event.eventType) & int(self.constant("nvmlEventTypeXidCriticalError")):
                return tuple(known)
            known.append(int(event.eventData))

    def _register(self, handle: Any) -> Any:
        events = self.ask("nvmlEventSetCreate")
        try:
            self.ask("nvmlDeviceRegisterEvents", handle, self.constant("nvmlEventTypeXidCriticalError"), events)
        except Refused:
            self.ask("nvmlEventSetFree", events)
            raise
        return events

    def _get(
        self,
        handle: Any,
        sensor: str,
        query: str,
        *arguments: Any,
        of: Callable[[Any], _T] = float,  # type: ignore[assignment]
        absent: tuple[int, ...] = (),
    ) -> _T | None:
        """Ask ``nvmlDeviceGet<query>`` of a card, and make ``of`` the answer; as :meth:`_ask`."""
        return self._ask(sensor, lambda: of(self.ask(f"nvmlDeviceGet{query}", handle, *arguments)), absent)

    def _ask(self, sensor: str, query: Callable[[], _T], absent: tuple[int, ...] = ()) -> _T | None:
        """Answer a query, with ``None`` if this driver, card or release of nvidia-ml-py cannot.

        An error is kept under the name of the ``sensor``, unless it says that there is none: one of ``LACKING``, or a
        number in ``absent``.
        """
        try:
            return query() if self.opened else None
        except Refused as error:
            if sensor and error.code not in (*LACKING, *absent):
                self._fails(sensor, error)
        except (AttributeError, TypeError, ValueError):
            pass
        return None

    def _fails(self, sensor: str, error: Refused) -> None:
        self._failed[sensor] = Failure(int(error.code or 0), error.text)


def _watts(milliwatts: float) -> float:
    return float(milliwatts) * 1e-3
