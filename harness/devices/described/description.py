"""The schema of a file that describes a machine: its cards, its software and its faults."""

from __future__ import annotations

from typing import get_args

from pydantic import Field

from harness.devices.described.fault_tables import CUDA_VERSION, VERSION, FaultTable, whole_number
from harness.devices.described.faults import Fault
from harness.devices.toml_file import Table

#: The version of the schema in this module. Earlier ones stay readable.
SCHEMA_VERSION = 1
#: More cards than any host has.
MOST_CARDS = 64
#: NVML's NVML_NVLINK_MAX_LINKS.
MOST_LINKS = 18
_CAPABILITY = r"^\d{1,2}\.\d$"
#: The driver's stand-in reads it as a line.
_LINE, _PERHAPS_EMPTY = r"^[^\x00-\x1f\x7f]+$", r"^[^\x00-\x1f\x7f]*$"


class CardsTable(Table):
    """``[cards]``: one model, whose figures are the defaults. ``[[card]]`` says what differs on a card."""

    count: int = whole_number(1, MOST_CARDS)
    model: str = Field(
        pattern=_LINE, description="a name as the driver reports it, in one line, such as 'NVIDIA H100 80GB HBM3'"
    )
    compute_capability: str | None = Field(default=None, pattern=_CAPABILITY, description="a version, such as '9.0'")
    pcie_generation: int | None = whole_number(1, 6, default=None)
    pcie_width: int | None = whole_number(1, 16, default=None)
    nvlinks: int | None = whole_number(0, MOST_LINKS, default=None)
    bridges: list[list[int]] = Field(
        default_factory=list,
        description="a list of [card, card, links], such as [[0, 1, 4]] (the NVLinks between two cards; pairs that are "
        "not listed have none)",
    )
    link_gbs: float | None = Field(
        default=None, gt=0, description="a number above 0 (GB/s of one NVLink in one direction)"
    )
    sensors: bool = Field(default=True, description="true or false (whether the cards have sensors)")
    without: list[str] = Field(
        default_factory=list,
        description="a list of the sensors that the cards lack, such as ['ecc_corrected', 'power_w']",
    )
    on_chip: bool = Field(
        default=False,
        description="true or false (whether the GPU is on the chip of the processor, without memory of its own)",
    )
    exclusive: bool = Field(default=False, description="true or false (whether only one process may use a card)")
    slices: int = whole_number(0, 7, "MIG slices of each card; 0: MIG is off", default=0)
    software_mib: int = whole_number(16, 65_536, "the MiB of memory of each software GPU", default=128)


class CardTable(Table):
    """``[[card]]``: what differs on one card."""

    card: int = whole_number(0, of="the slot of the card")
    model: str | None = Field(default=None, pattern=_LINE, description="a name as the driver reports it, in one line")
    compute_capability: str | None = Field(
        default=None, pattern=_CAPABILITY, description="a version, such as '8.0' (only together with the key `model`)"
    )
    software_mib: int | None = whole_number(16, 65_536, "the MiB of memory of the software GPU", default=None)
    multiprocessors: int | None = whole_number(1, 1024, "multiprocessors of the card", default=None)
    vbios: str | None = Field(default=None, pattern=_LINE, description="a version, such as '96.00.30.00.02'")
    board_part: str | None = Field(
        default=None, pattern=_LINE, description="a part number, such as '692-2G506-0200-000'"
    )


class SoftwareTable(Table):
    """``[software]``: what the driver and CUDA's libraries report about themselves."""

    driver: str = Field(default="570.86.15", pattern=VERSION, description="a version, such as '570.86.15'")
    driver_cuda: str = Field(default="12.8", pattern=CUDA_VERSION, description="a version, such as '12.8'")
    cudnn: str = Field(default="9.3.0", pattern=VERSION, description="a version, such as '9.3.0'")
    nccl: str = Field(default="2.25.1", pattern=VERSION, description="a version, such as '2.25.1'")
    container: bool = Field(default=False, description="true or false (whether all this is seen from a container)")
    visible: str | None = Field(
        default=None, pattern=_PERHAPS_EMPTY, description="a value of CUDA_VISIBLE_DEVICES, such as '3,1'"
    )


class Description(Table):
    """A whole file."""

    # Not a Literal: that would take true for 1.
    schema_version: int = Field(ge=1, le=SCHEMA_VERSION, description=str(SCHEMA_VERSION))
    description: str = Field(default="", description="a string")
    seed: int = Field(default=0, ge=0, lt=2**63, description="an integer, 0 or more and below 2^63")
    cards: CardsTable = Field(
        description="a table [cards] with `count`, `model` and the figures that differ from the model's"
    )
    card: list[CardTable] = Field(
        default_factory=list, description="tables [[card]], each with `card`, the slot of a card"
    )
    software: SoftwareTable = Field(default_factory=SoftwareTable, description="a table of versions")
    fault: list[Fault] = Field(default_factory=list, description="tables [[fault]], each with a `kind`")


#: What `cards.without` can name, with the keys of each in ``softgpu/driver_source/nvml.cc``.
SENSORS: dict[str, tuple[str, ...]] = {
    "clock_max_mhz": ("clock_max", "clock", "memory_clock"),
    "clock_mhz": ("clock",),
    "ecc_corrected": ("ecc_corrected",),
    "ecc_uncorrected": ("ecc_uncorrected",),
    "nvlinks_active": ("nvlinks",),
    "nvlinks_total": ("nvlinks",),
    "pcie_generation": ("pcie_generation",),
    "pcie_generation_max": ("pcie_generation_max",),
    "pcie_replays": ("pcie_replays",),
    "pcie_width": ("pcie_width",),
    "pcie_width_max": ("pcie_width_max",),
    "power_limit_w": ("power_limit", "power_default", "power"),
    "power_w": ("power",),
    "remapped_rows": ("remapped_rows", "field.230"),
    "temperature_c": ("temperature",),
    "temperature_slowdown_c": ("slowdown_c",),
    "throttle_reasons": ("throttle",),
    "utilization_percent": ("utilization",),
    "xid": ("event_types",),
}

FAULT_TABLES: tuple[type[FaultTable], ...] = get_args(get_args(Fault)[0])
#: The kinds of fault that a description can name.
FAULT_KINDS: tuple[str, ...] = tuple(get_args(each.model_fields["kind"].annotation)[0] for each in FAULT_TABLES)
