"""Durations on a described machine: bytes over bandwidth, operations over rate, and a little noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from harness.devices.described import fault_tables as tables
from harness.devices.described.models import PCIE_LANE_GBS
from harness.hardware.machine import Operation
from simulated.models import Model

if TYPE_CHECKING:
    Faults = tuple[tables.FaultTable, ...]

#: Overhead of a copy and of the start of an operation in TensorFlow, in seconds.
HOST_COPY_S, PAIR_COPY_S, LAUNCH_S = 8e-6, 250e-6, 6e-6
#: Share of the slower link that two cards without NVLink get, over the host's bridge.
PEER_SHARE = 0.8
#: Operations of unknown rate reach this share of the rate of matrix products in float32.
OTHER_SHARE = 0.25


class Timing:
    """Durations in seconds of actions of cards, which are named by their labels."""

    def __init__(
        self,
        model: Model,
        faults: Mapping[str, Faults],
        noise: float,
        random: np.random.Generator,
        nvlinks: Mapping[tuple[str, str], int],
    ) -> None:
        self._model = model
        self._nvlinks = nvlinks
        self._faults = faults
        self._noise = noise
        self._random = random
        self._drawn: list[float] = []

    def touch_s(self, size_bytes: int) -> float:
        """Return the time to write or read memory of a card."""
        return self._noisy(LAUNCH_S + size_bytes / (self._model.memory_gbs * 1e9))

    def host_copy_s(self, size_bytes: int) -> float:
        """Return the time of a copy between the host and a card."""
        return self._noisy(HOST_COPY_S + size_bytes / (self._pcie_gbs() * 1e9))

    def pair_copy_s(self, source: str, target: str, size_bytes: int) -> float:
        """Return the time of a copy between cards: over NVLinks if both have some, or over PCIe."""
        links = self._nvlinks.get((source, target), 0)
        gbs = links * self._model.link_gbs if links else PEER_SHARE * self._pcie_gbs()
        return self._noisy(PAIR_COPY_S + size_bytes / (gbs * 1e9))

    def run_s(self, card: str, operation: Operation, repeats: int) -> float:
        """Return the time of ``repeats`` runs of an operation."""
        rate = self.rate_gflops(operation)
        share = 1.0
        for fault in self._faults[card]:
            if isinstance(fault, tables.Slow):
                share *= fault.factor
        computing = (operation.flop or 0.0) / (rate * 1e9)
        moving = (operation.traffic_bytes or 0.0) / (self._model.memory_gbs * 1e9)
        return self._noisy(repeats * (LAUNCH_S + max(computing, moving) / share))

    def rate_gflops(self, operation: Operation) -> float:
        """Return the rate of an operation: by its name, by its first word and dtype, or a share of a product's."""
        rates = self._model.rates
        family = operation.name.split()[0]
        for name in (operation.name, f"{family} {operation.dtype}", f"matmul {operation.dtype}"):
            if name in rates:
                return rates[name] if name.split()[0] == family else OTHER_SHARE * rates[name]
        return OTHER_SHARE * rates["matmul float32"]

    def _pcie_gbs(self) -> float:
        return PCIE_LANE_GBS[self._model.pcie_generation] * self._model.pcie_width * self._model.pcie_share

    def _noisy(self, seconds: float) -> float:
        if not self._noise:
            return seconds
        if not self._drawn:
            # Drawn in bulk, because single draws take longer than the rest of the simulation.
            self._drawn = np.exp(self._random.normal(0.0, self._noise, 4096)).tolist()
        return seconds * self._drawn.pop()
