"""The sensors of a described card: temperature, clock, power and counters as functions of time and load."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from harness.devices.described import fault_tables as tables
from harness.hardware.machine import Reading
from simulated.models import Model

#: Temperature of a card without load, and how much it rises under load, in degrees Celsius.
IDLE_C, RISE_C = 34.0, 33.0
#: Time constant of warming up and cooling down, in seconds.
WARMING_S = 15.0
#: Degrees above its limit that a card with the fault ``hot`` reaches, and the share of its clock left then.
OVER_C, SLOWED_TO = 10.0, 0.55
#: A link that has done nothing for this long reports a low speed, in seconds.
LINK_SLEEPS_S = 0.05
#: Errors that were corrected long ago: a healthy card has some.
OLD_CORRECTED = 3


@dataclass(slots=True)
class CardSensors:
    """The sensors of one card. ``load_s`` is how long it has worked, ``warmth`` from 0 to 1 how warm it is."""

    model: Model
    faults: tuple[tables.FaultTable, ...]
    lacks: frozenset[str] = frozenset()
    load_s: float = 0.0
    warmth: float = 0.0
    worked_until_s: float = -1.0
    _seen_s: float = field(default=0.0)

    def worked(self, began_s: float, ended_s: float) -> None:
        """Note that the card worked during that time, and rested before."""
        self.warmth *= math.exp(-max(0.0, began_s - self._seen_s) / WARMING_S)
        busy = ended_s - began_s
        self.warmth += (1 - self.warmth) * (1 - math.exp(-busy / self._warming_s))
        self.load_s += busy
        self._seen_s = self.worked_until_s = ended_s

    @property
    def clock_share(self) -> float:
        """The clock as a share of the highest one."""
        over = self.temperature_c - self.model.temperature_slowdown_c
        return 1.0 if over <= 0 else max(SLOWED_TO, 1.0 - (1.0 - SLOWED_TO) * over / OVER_C)

    @property
    def temperature_c(self) -> float:
        """The temperature in degrees Celsius."""
        return IDLE_C + (self._top_c - IDLE_C) * self.warmth

    @property
    def _top_c(self) -> float:
        return self.model.temperature_slowdown_c + OVER_C if self._hot is not None else IDLE_C + RISE_C

    @property
    def _hot(self) -> tables.Hot | None:
        return next((fault for fault in self.faults if isinstance(fault, tables.Hot)), None)

    @property
    def _warming_s(self) -> float:
        if self._hot is None:
            return WARMING_S
        share = (self.model.temperature_slowdown_c - IDLE_C) / (self._top_c - IDLE_C)
        return -self._hot.slowdown_after_s / math.log(1 - share)

    def reading(self, at_s: float) -> Reading:
        """Read the sensors. Those that the card lacks are ``None``."""
        busy = at_s - self.worked_until_s < LINK_SLEEPS_S
        slowed = self.clock_share < 1.0
        made = Reading(
            at_s=at_s,
            clock_mhz=self.model.clock_max_mhz * (self.clock_share * 0.97 if busy else 0.2),
            clock_max_mhz=self.model.clock_max_mhz,
            temperature_c=self.temperature_c,
            temperature_slowdown_c=self.model.temperature_slowdown_c,
            power_w=self.model.power_limit_w * (0.9 * self.clock_share if busy else 0.12),
            power_limit_w=self.model.power_limit_w,
            utilization_percent=100.0 if busy else 0.0,
            throttle_reasons=("SwThermalSlowdown", "HwThermalSlowdown") if slowed else () if busy else ("GpuIdle",),
            ecc_corrected=OLD_CORRECTED,
            ecc_uncorrected=0,
            remapped_rows=0,
            remap_pending=False,
            remap_failed=False,
            retired_pages=0,
            retired_pending=False,
            recovery_action=0,
            pcie_generation=self.model.pcie_generation if busy else 1,
            pcie_generation_max=self.model.pcie_generation,
            pcie_width=self.model.pcie_width,
            pcie_width_max=self.model.pcie_width,
            pcie_replays=0,
            nvlinks_active=self.model.nvlinks or None,
            nvlinks_total=self.model.nvlinks or None,
            xid=(),
        )
        for fault in self.faults:
            made = self._with(fault, made, busy)
        lacking: dict[str, Any] = dict.fromkeys(self.lacks)
        return replace(made, **lacking)

    def _with(self, fault: tables.FaultTable, made: Reading, busy: bool) -> Reading:
        if isinstance(fault, tables.LinkWidth):
            return replace(made, pcie_width=min(fault.width, self.model.pcie_width))
        if isinstance(fault, tables.LinkGeneration):
            generation = min(fault.generation, self.model.pcie_generation) if busy else 1
            return replace(made, pcie_generation=generation)
        if isinstance(fault, tables.Ecc):
            corrected = OLD_CORRECTED + int(fault.corrected_per_s * self.load_s)
            return replace(made, ecc_corrected=corrected, ecc_uncorrected=int(fault.uncorrected_per_s * self.load_s))
        if isinstance(fault, tables.Replays):
            return replace(made, pcie_replays=int(fault.per_s * self.load_s))
        if isinstance(fault, tables.NvlinkDown) and self.model.nvlinks:
            return replace(made, nvlinks_active=max(0, self.model.nvlinks - fault.links))
        if isinstance(fault, tables.RowRemap):
            failed = fault.state == "failed"
            return replace(
                made, remapped_rows=8, remap_failed=failed, remap_pending=not failed, recovery_action=not failed
            )
        if isinstance(fault, tables.RetiredPages):
            return replace(made, retired_pages=fault.count, retired_pending=fault.pending)
        if isinstance(fault, tables.PowerLimit):
            return replace(made, power_limit_w=min(fault.watts, self.model.power_limit_w))
        if isinstance(fault, tables.Xid) and self.load_s >= fault.after_s:
            return replace(made, xid=(*(made.xid or ()), fault.code))
        return made
