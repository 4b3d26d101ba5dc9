"""Sensors: of NVIDIA's cards through NVML, of CPUs through the kernel. Which cards exist, ``devices.nvidia`` reads.

Each query may fail on its own (a card without ECC, a driver in a container that refuses one); its field is then
``None``. No query needs privileges, and none starts CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from harness.devices.nvidia import open_nvml
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


#: NVML's error where nothing has come in the time given.
_TIMEOUT = 10

#: What Linux's drivers call the sensor of a whole CPU: Intel, AMD, Arm boards, and ACPI as the last resort.
_CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz")


class Sensors:
    """Reads the sensors of ``cards`` by UUID. NVML is opened only if a card has one."""

    def __init__(self, cards: Iterable[Card], nvml: Nvml | None = None) -> None:
        self._cards = {card.label: card for card in cards}
        needed = any(card.uuid is not None for card in self._cards.values())
        self.nvml = nvml if nvml is not None else Nvml.load() if needed else Nvml(None)

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
        handle = self.handle(uuid)
        if handle is None:
            return Reading(at_s)
        return Reading(
            at_s=at_s,
            clock_mhz=self._number("ClockInfo", handle, "NVML_CLOCK_SM"),
            clock_max_mhz=self._number("MaxClockInfo", handle, "NVML_CLOCK_SM"),
            temperature_c=self._number("Temperature", handle, "NVML_TEMPERATURE_GPU"),
            temperature_slowdown_c=self._number("TemperatureThreshold", handle, "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"),
            power_w=self._number("PowerUsage", handle, scale=1e-3),
            power_limit_w=self._number("EnforcedPowerLimit", handle, scale=1e-3),
            utilization_percent=self._ask(lambda module: float(module.nvmlDeviceGetUtilizationRates(handle).gpu)),
            throttle_reasons=self._throttle_reasons(handle),
            ecc_corrected=self._ecc(handle, "NVML_MEMORY_ERROR_TYPE_CORRECTED"),
            ecc_uncorrected=self._ecc(handle, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED"),
            **self._repairs(handle),
            pcie_generation=self._count("CurrPcieLinkGeneration", handle),
            pcie_generation_max=self._count("MaxPcieLinkGeneration", handle),
            pcie_width=self._count("CurrPcieLinkWidth", handle),
            pcie_width_max=self._count("MaxPcieLinkWidth", handle),
            pcie_replays=self._count("PcieReplayCounter", handle),
            **self._nvlinks(handle),
            xid=self._xid(uuid, handle),
        )

    @property
    def most_links(self) -> int:
        """The NVLinks that a card can have."""
        return int(getattr(self._module, "NVML_NVLINK_MAX_LINKS", 18))

    def field(self, handle: Any, name: str) -> int | None:
        """Return the value of a field, by the name of its number."""
        return self._ask(lambda module: _field(module, handle, name))

    def _number(self, query: str, handle: Any, constant: str = "", scale: float = 1.0) -> float | None:
        """Ask ``nvmlDeviceGet<query>``, with the value of a constant as its second argument."""

        def ask(module: Any) -> float:
            arguments = [getattr(module, constant)] if constant else []
            return float(getattr(module, f"nvmlDeviceGet{query}")(handle, *arguments)) * scale

        return self._ask(ask)

    def _count(self, query: str, handle: Any) -> int | None:
        return self._ask(lambda module: int(getattr(module, f"nvmlDeviceGet{query}")(handle)))

    def handle(self, uuid: str) -> Any | None:
        """Return NVML's handle of the card, or of the card of a slice; ``None`` if it knows none."""
        if uuid not in self._handles:
            # Older releases of nvidia-ml-py accept only bytes.
            for name in (uuid, uuid.encode()):
                handle = self.call("nvmlDeviceGetHandleByUUID", name)
                if handle is not None:
                    # A slice has no sensors: those of its card count.
                    card = (
                        self.call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
                        if uuid.startswith("MIG-")
                        else None
                    )
                    self._handles[uuid] = handle if card is None else card
                    break
        return self._handles.get(uuid)

    def _throttle_reasons(self, handle: Any) -> tuple[str, ...] | None:
        for query, prefix in (
            ("CurrentClocksEventReasons", "nvmlClocksEventReason"),
            ("CurrentClocksThrottleReasons", "nvmlClocksThrottleReason"),
        ):
            mask = self._count(query, handle)
            if mask is not None:
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
        """Return the errors since the driver was loaded: those of years ago say nothing of a card that was mended."""
        return self._ask(
            lambda module: int(
                module.nvmlDeviceGetTotalEccErrors(handle, getattr(module, kind), module.NVML_VOLATILE_ECC)
            )
        )

    def _repairs(self, handle: Any) -> dict[str, Any]:
        rows = self.call("nvmlDeviceGetRemappedRows", handle)
        pages = self._ask(lambda module: len(module.nvmlDeviceGetRetiredPages(handle, 1)))
        return {
            "remapped_rows": None if rows is None else int(rows[0]) + int(rows[1]),
            "remap_pending": None if rows is None else bool(rows[2]),
            "remap_failed": None if rows is None else bool(rows[3]),
            "retired_pages": pages,
            "retired_pending": self._ask(lambda module: bool(module.nvmlDeviceGetRetiredPagesPendingStatus(handle))),
            "recovery_action": self.field(handle, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"),
        }

    def _nvlinks(self, handle: Any) -> dict[str, Any]:
        """Count the links, and the active ones; ``None`` for a card without links."""
        states = [
            state
            for link in range(self.most_links)
            if (state := self.call("nvmlDeviceGetNvLinkState", handle, link)) is not None
        ]
        if not states:
            return dict.fromkeys(("nvlinks_active", "nvlinks_total"))
        speed = self.field(handle, "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON")
        active = getattr(self._module, "NVML_FEATURE_ENABLED", 1)
        return {
            "nvlinks_active": sum(state == active for state in states),
            "nvlinks_total": len(states),
            "nvlink_gbs": speed / 1000 if speed else None,
            "nvlink_errors": self._nvlink_errors(handle, len(states)),
        }

    def _nvlink_errors(self, handle: Any, links: int) -> int | None:
        """Add up what all links resent and how often they were trained again."""
        kinds = [getattr(self._module, f"NVML_NVLINK_ERROR_DL_{name}", None) for name in ("REPLAY", "RECOVERY")]
        asked = [(link, kind) for link in range(links) for kind in kinds if kind is not None]
        counts = [self.call("nvmlDeviceGetNvLinkErrorCounter", handle, *each) for each in asked]
        known = [each for each in counts if each is not None]
        return sum(map(int, known)) if known else None

    def _xid(self, uuid: str, handle: Any) -> tuple[int, ...] | None:
        """Return the critical errors since the first reading; ``None`` if the driver does not report any."""
        if uuid not in self._events:
            self._events[uuid] = self._ask(lambda module: _register(module, handle))
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
                return tuple(known) if known or getattr(error, "value", None) == _TIMEOUT else None
            if not int(event.eventType) & int(self._module.nvmlEventTypeXidCriticalError):
                return tuple(known)
            known.append(int(event.eventData))

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function of NVML; ``None`` if it fails."""
        return self._ask(lambda module: getattr(module, function)(*arguments))

    def _ask(self, query: Callable[[Any], _T]) -> _T | None:
        """Answer a query, with ``None`` if this driver, card or release of nvidia-ml-py cannot."""
        module = self._module
        if module is None:
            return None
        try:
            return query(module)
        except (module.NVMLError, AttributeError, TypeError, ValueError):
            return None


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
