"""What the driver says of common models of cards, for described machines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from harness.devices.shipped import shipped_folder
from harness.devices.toml_file import parse_toml

#: One direction of one PCIe lane by generation, in GB/s (1e9), after line coding (PCI-SIG base specifications).
PCIE_LANE_GBS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
#: Share of the stated rate of an NVLink that a copy gets.
NVLINK_SHARE = 0.85


@dataclass(frozen=True, slots=True)
class Model:
    """One model of card. ``link_gbs`` is one direction of one NVLink, in GB/s (1e9 bytes); ``nvlinks`` may be 0."""

    compute_capability: str
    pcie_generation: int
    pcie_width: int = 16
    nvlinks: int = 0
    link_gbs: float = 20.0
    clock_max_mhz: float = 1980.0
    power_limit_w: float = 700.0
    temperature_slowdown_c: float = 87.0


#: By the name that the driver reports, from NVIDIA's data sheets (2020 to 2024).
MODELS: dict[str, Model] = {
    "NVIDIA H100 80GB HBM3": Model("9.0", 5, nvlinks=18, link_gbs=21.0),
    "NVIDIA H100 PCIe": Model("9.0", 5, clock_max_mhz=1755.0, power_limit_w=350.0),
    "NVIDIA H200": Model("9.0", 5, nvlinks=18, link_gbs=21.0),
    "NVIDIA A100-SXM4-80GB": Model("8.0", 4, nvlinks=12, clock_max_mhz=1410.0, power_limit_w=400.0),
    "NVIDIA L40S": Model("8.9", 4, clock_max_mhz=2520.0, power_limit_w=350.0),
    "NVIDIA L4": Model("8.9", 4, clock_max_mhz=2040.0, power_limit_w=72.0),
    "Tesla V100-SXM2-16GB": Model("7.0", 3, nvlinks=6, clock_max_mhz=1530.0, power_limit_w=300.0),
    "Tesla T4": Model("7.5", 3, clock_max_mhz=1590.0, power_limit_w=70.0),
    "NVIDIA GeForce RTX 4090": Model("8.9", 4, clock_max_mhz=2520.0, power_limit_w=450.0),
}

#: Multiprocessors of small cards, which TensorFlow leaves out beside larger ones (NVIDIA's specifications).
MULTIPROCESSORS = {
    "GeForce GT 1030": 3,
    "GeForce GTX 1050": 5,
    "GeForce GTX 1050 Ti": 6,
    "Quadro P400": 2,
    "Quadro P600": 3,
    "Quadro P620": 4,
    "Quadro P1000": 5,
    "T400": 6,
    "T400 4GB": 6,
}


@lru_cache
def model_named(name: str) -> Model:
    """Return the model of that name: one of ``MODELS``, or one whose figures are in ``profiles/hardware``."""
    if name in MODELS:
        return MODELS[name]
    for path in sorted(shipped_folder("hardware").glob("*.toml")):
        profile = parse_toml(path, path.read_text(encoding="utf-8"))
        if name in profile["matches"]:
            figures = {each["figure"]: float(each["value"]) for each in profile["figures"]}
            made = Model(
                "8.0",
                int(figures.get("pcie generation", 4)),
                int(figures.get("pcie width", 16)),
                int(figures.get("nvlinks", 0)),
                NVLINK_SHARE * figures.get("nvlink rate", 0.0),
            )
            # A card that shares its power with a processor has no figure of its own.
            return replace(made, power_limit_w=figures.get("power limit", made.power_limit_w))
    return Model("8.0", 4)
