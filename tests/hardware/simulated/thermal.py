"""The sensors of a card in good order: temperature, clock and power as functions of time and load."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from harness.hardware.machine import Reading
from simulated.models import Model

#: Temperature of a card without load, and how much it rises under load, in degrees Celsius.
IDLE_C, RISE_C = 34.0, 33.0
#: Time constant of warming up and cooling down, in seconds.
WARMING_S = 15.0
#: A link that has done nothing for this long reports a low speed, in seconds.
LINK_SLEEPS_S = 0.05
#: Errors that were corrected long ago: a healthy card has some.
OLD_CORRECTED = 3


@dataclass(slots=True)
class CardSensors:
    """The sensors of one card. ``warmth`` from 0 to 1 is how warm it is."""

    model: Model
    lacks: frozenset[str] = frozenset()
    warmth: float = 0.0
    worked_until_s: float = -1.0
    _seen_s: float = field(default=0.0)

    def worked(self, began_s: float, ended_s: float) -> None:
        """Note that the card worked during that time, and rested before."""
        self.warmth *= math.exp(-max(0.0, began_s - self._seen_s) / WARMING_S)
        busy = ended_s - began_s
        self.warmth += (1 - self.warmth) * (1 - math.exp(-busy / WARMING_S))
        self._seen_s = self.worked_until_s = ended_s

    @property
    def temperature_c(self) -> float:
        """The temperature in degrees Celsius."""
        return IDLE_C + RISE_C * self.warmth

    def reading(self, at_s: float) -> Reading:
        """Read the sensors. Those that the card lacks are ``None``."""
        busy = at_s - self.worked_until_s < LINK_SLEEPS_S
        made = Reading(
            at_s=at_s,
            clock_mhz=self.model.clock_max_mhz * (0.97 if busy else 0.2),
            clock_max_mhz=self.model.clock_max_mhz,
            temperature_c=self.temperature_c,
            temperature_slowdown_c=self.model.temperature_slowdown_c,
            power_w=self.model.power_limit_w * (0.9 if busy else 0.12),
            power_limit_w=self.model.power_limit_w,
            utilization_percent=100.0 if busy else 0.0,
            throttle_reasons=() if busy else ("GpuIdle",),
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
        lacking: dict[str, Any] = dict.fromkeys(self.lacks)
        return replace(made, **lacking)
