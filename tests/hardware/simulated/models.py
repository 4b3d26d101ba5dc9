"""Figures of healthy cards of common models, for simulated machines."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from harness.devices.described import models as described, order
from harness.devices.described.description import Description

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Model(described.Model):
    """A model of card as the driver describes it, and what it reaches.

    ``rates`` are by the name of a figure in GFLOP/s, ``memory_gbs`` is in GB/s (1e9 bytes). ``peak`` is the highest
    ``matmul float32`` rate that the maker states, in GFLOP/s.
    """

    memory_bytes: int = 0
    rates: dict[str, float] = field(default_factory=dict)
    peak: float = 0.0
    memory_gbs: float = 0.0
    #: Share of the link's raw bandwidth that a copy gets: the rest is headers and acknowledgements.
    pcie_share: float = 0.85


def _rates(float64: float, float32: float, tf32: float | None, half: float, bfloat16: float | None) -> dict[str, float]:
    """Return rates of matrix products in GFLOP/s, for the dtypes of the model."""
    made = {"matmul float64": float64, "matmul float32": float32, "matmul float16": half}
    if tf32 is not None:
        made["matmul tfloat32"] = tf32
    if bfloat16 is not None:
        made["matmul bfloat16"] = bfloat16
    return made


#: By the name that the driver reports: GiB of memory, rates, the peak, and GB/s of the memory. Rates are about three
#: quarters of the peaks in NVIDIA's data sheets (2020 to 2024), which is what large matrix products reach.
_REACHED: dict[str, tuple[int, dict[str, float], float, float]] = {
    "NVIDIA H100 80GB HBM3": (80, _rates(50e3, 51e3, 370e3, 700e3, 700e3), 67e3, 2800.0),
    "NVIDIA H100 PCIe": (80, _rates(38e3, 40e3, 280e3, 520e3, 520e3), 51e3, 1700.0),
    "NVIDIA H200": (141, _rates(50e3, 51e3, 380e3, 720e3, 720e3), 67e3, 4000.0),
    "NVIDIA A100-SXM4-80GB": (80, _rates(17e3, 18e3, 125e3, 250e3, 250e3), 19.5e3, 1700.0),
    "NVIDIA L40S": (48, _rates(1.2e3, 60e3, 120e3, 240e3, 240e3), 91.6e3, 700.0),
    "NVIDIA L4": (24, _rates(0.4e3, 18e3, 45e3, 90e3, 90e3), 30.3e3, 250.0),
    "Tesla V100-SXM2-16GB": (16, _rates(6.8e3, 14e3, None, 90e3, None), 15.7e3, 780.0),
    "Tesla T4": (15, _rates(0.24e3, 5.5e3, None, 40e3, None), 8.1e3, 260.0),
    "NVIDIA GeForce RTX 4090": (24, _rates(1.2e3, 60e3, 75e3, 150e3, 150e3), 82.6e3, 900.0),
}


def model_of(description: Description) -> Model:
    """Return the model of the cards, with the links of the description."""
    gib, rates, peak, memory_gbs = _REACHED[description.cards.model]
    return Model(
        **asdict(order.model_of(description)), memory_bytes=gib * _GIB, rates=rates, peak=peak, memory_gbs=memory_gbs
    )
