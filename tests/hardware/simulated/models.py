"""Figures of healthy cards of common models, for simulated machines."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from harness.devices.described import order
from harness.devices.described.description import Description

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Model:
    """One model of card. ``rates`` are by the name of a figure in GFLOP/s, bandwidths in GB/s (1e9 bytes).

    ``peak`` is the highest ``matmul float32`` rate that the maker states, in GFLOP/s. ``link_gbs`` is one direction
    of one NVLink; ``nvlinks`` is 0 for a card without them.
    """

    compute_capability: str
    memory_bytes: int
    rates: dict[str, float]
    peak: float
    memory_gbs: float
    pcie_generation: int
    pcie_width: int = 16
    nvlinks: int = 0
    link_gbs: float = 0.0
    clock_max_mhz: float = 1980.0
    power_limit_w: float = 700.0
    temperature_slowdown_c: float = 87.0
    #: Share of the link's raw bandwidth that a copy gets: the rest is headers and acknowledgements.
    pcie_share: float = field(default=0.85)


def _rates(float64: float, float32: float, tf32: float | None, half: float, bfloat16: float | None) -> dict[str, float]:
    """Return rates of matrix products in GFLOP/s, for the dtypes of the model."""
    made = {"matmul float64": float64, "matmul float32": float32, "matmul float16": half}
    if tf32 is not None:
        made["matmul tfloat32"] = tf32
    if bfloat16 is not None:
        made["matmul bfloat16"] = bfloat16
    return made


#: By the name that the driver reports. Rates are about three quarters of the peaks in NVIDIA's data sheets (2020 to
#: 2024), which is what large matrix products reach.
MODELS: dict[str, Model] = {
    "NVIDIA H100 80GB HBM3": Model(
        "9.0", 80 * _GIB, _rates(50e3, 51e3, 370e3, 700e3, 700e3), 67e3, 2800.0, 5, nvlinks=18, link_gbs=21.0
    ),
    "NVIDIA H100 PCIe": Model(
        "9.0", 80 * _GIB, _rates(38e3, 40e3, 280e3, 520e3, 520e3), 51e3, 1700.0, 5,
        clock_max_mhz=1755.0, power_limit_w=350.0,
    ),
    "NVIDIA H200": Model(
        "9.0", 141 * _GIB, _rates(50e3, 51e3, 380e3, 720e3, 720e3), 67e3, 4000.0, 5, nvlinks=18, link_gbs=21.0
    ),
    "NVIDIA A100-SXM4-80GB": Model(
        "8.0", 80 * _GIB, _rates(17e3, 18e3, 125e3, 250e3, 250e3), 19.5e3, 1700.0, 4, nvlinks=12, link_gbs=20.0,
        clock_max_mhz=1410.0, power_limit_w=400.0,
    ),
    "NVIDIA L40S": Model(
        "8.9", 48 * _GIB, _rates(1.2e3, 60e3, 120e3, 240e3, 240e3), 91.6e3, 700.0, 4,
        clock_max_mhz=2520.0, power_limit_w=350.0,
    ),
    "NVIDIA L4": Model(
        "8.9", 24 * _GIB, _rates(0.4e3, 18e3, 45e3, 90e3, 90e3), 30.3e3, 250.0, 4,
        clock_max_mhz=2040.0, power_limit_w=72.0,
    ),
    "Tesla V100-SXM2-16GB": Model(
        "7.0", 16 * _GIB, _rates(6.8e3, 14e3, None, 90e3, None), 15.7e3, 780.0, 3, nvlinks=6, link_gbs=20.0,
        clock_max_mhz=1530.0, power_limit_w=300.0,
    ),
    "Tesla T4": Model(
        "7.5", 15 * _GIB, _rates(0.24e3, 5.5e3, None, 40e3, None), 8.1e3, 260.0, 3,
        clock_max_mhz=1590.0, power_limit_w=70.0,
    ),
    "NVIDIA GeForce RTX 4090": Model(
        "8.9", 24 * _GIB, _rates(1.2e3, 60e3, 75e3, 150e3, 150e3), 82.6e3, 900.0, 4,
        clock_max_mhz=2520.0, power_limit_w=450.0,
    ),
}  # fmt: skip


def model_of(description: Description) -> Model:
    """Return the model of the cards, with the links of the description."""
    said = order.model_of(description)
    links: dict[str, Any] = {
        "pcie_generation": said.pcie_generation,
        "pcie_width": said.pcie_width,
        "link_gbs": said.link_gbs,
    }
    return replace(MODELS[description.cards.model], **links, nvlinks=said.nvlinks)
