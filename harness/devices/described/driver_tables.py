"""The faults of a described machine that its driver tells, or that keep it from telling anything."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.devices.described.fault_tables import MOST_COUNTED, FaultTable, OnCard, whole_number

#: NVML's numbers of what the driver asks for.
RECOVERY_ACTIONS = {
    "reset": 1,
    "reboot": 2,
    "drain-p2p": 3,
    "drain-and-reset": 4,
    "recover-imex-domain": 5,
    "bus-reset": 6,
    "system-reboot": 7,
}
RecoveryName = Literal[
    "reset", "reboot", "drain-p2p", "drain-and-reset", "recover-imex-domain", "bus-reset", "system-reboot"
]
#: NVML's numbers of the counters of an NVLink.
LINK_COUNTERS = {"replay": 0, "recovery": 1, "crc-flit": 2, "crc-data": 3}
#: NVML's numbers of the states of the fabric; 3 is completed.
FABRIC_STATES = {"not-started": 1, "in-progress": 2}


class NvlinkErrors(OnCard):
    """NVLinks of the card have counted errors, or count more while the card is in use."""

    kind: Literal["nvlink-errors"]
    links: list[Annotated[int, Field(ge=0)]] = Field(
        default=[0], min_length=1, description="a list of NVLinks of the card, counted from 0, such as [14]"
    )
    error: Literal["replay", "recovery", "crc-flit", "crc-data"] = Field(
        default="recovery", description="'replay', 'recovery', 'crc-flit' or 'crc-data'"
    )
    old: int = whole_number(0, MOST_COUNTED, "errors of each link before the run", default=0)
    per_s: float = Field(default=0.0, ge=0, le=1e9, description="a number from 0 to 1e9 (errors of each link a second)")


class PowerBrake(OnCard):
    """The board's power brake slows the card down."""

    kind: Literal["power-brake"]
    mhz: float = Field(default=345.0, gt=0, description="a number above 0 (MHz that are left)")


class ClockLock(OnCard):
    """Somebody has locked the clocks of the card, and not unlocked them."""

    kind: Literal["clock-lock"]
    clock: Literal["multiprocessors", "memory"] = Field(
        default="multiprocessors", description="'multiprocessors' or 'memory'"
    )
    mhz: float = Field(default=345.0, gt=0, description="a number above 0 (MHz)")


class PowerCap(OnCard):
    """Something caps the power of the card far below its limit: its board, or the server's management controller."""

    kind: Literal["power-cap"]
    watts: float = Field(default=150.0, gt=0, description="a number above 0 (watts that the card draws)")
    mhz: float = Field(default=600.0, gt=0, description="a number above 0 (MHz that are left)")


class ThermalSample(OnCard):
    """The driver reports thermal slowdown in one reading, and never again."""

    kind: Literal["thermal-sample"]
    reading: int = whole_number(1, of="the reading, counted from 1", default=5)


class RecoveryAction(OnCard):
    """The driver asks for something to be done about the card."""

    kind: Literal["recovery-action"]
    action: RecoveryName = Field(default="reset", description=f"one of {', '.join(RECOVERY_ACTIONS)}")


class EccOff(OnCard):
    """The card's ECC is switched off."""

    kind: Literal["ecc-off"]


class PersistenceOff(OnCard):
    """The card's persistence mode is off."""

    kind: Literal["persistence-off"]


class FabricState(OnCard):
    """The fabric of NVSwitches is not set up for the card."""

    kind: Literal["fabric-state"]
    state: Literal["not-started", "in-progress"] = Field(
        default="not-started", description="'not-started' or 'in-progress'"
    )


class BusOnly(OnCard):
    """The card is on the PCI bus, and the driver does not know it."""

    kind: Literal["bus-only"]


class DriverNotLoaded(FaultTable):
    """The driver is not loaded: the cards are on the PCI bus only."""

    kind: Literal["driver-not-loaded"]


class CollectiveHang(FaultTable):
    """Collectives by TensorFlow's own ops never return."""

    kind: Literal["collective-hang"]
    algorithm: Literal["nccl", "ring"] = Field(default="nccl", description="'nccl' or 'ring'")
    collective: Literal["all-reduce", "all-gather", "reduce-scatter", "broadcast"] | None = Field(
        default=None, description="'all-reduce', 'all-gather', 'reduce-scatter' or 'broadcast'; default: all"
    )
