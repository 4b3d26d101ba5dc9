"""The record of an advice, stored as ``advice.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.speed.record import DeviceMemory, Interval

#: Version of the stored form of :class:`Advice`. A reader accepts this one and all earlier ones.
ADVICE_SCHEMA_VERSION = 1

#: ``baseline``: one device, with which all others are compared. ``proved``: computes the same for every input, as far
#: as ``reason`` says. ``verified``: computed the same on the example batch. ``wrong``: did not. ``not comparable``: it
#: could not be tried, or not be compared.
Judgement = Literal["baseline", "proved", "verified", "wrong", "not comparable"]
#: The name of the way that all others are compared with.
BASELINE = "one device"
#: The name of the way that runs the program on the host.
CPU = "CPU"


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run the program. Only right ways have times: ``speedup`` is relative to one device."""

    name: str
    #: The devices that it uses, by short names such as ``GPU:0``.
    devices: tuple[str, ...]
    judgement: Judgement
    #: What was proved or verified, the finding, or why it cannot be compared.
    reason: str = ""
    #: The median time of a step, and that of one device in the same pairs.
    time_ns: float | None = None
    single_ns: float | None = None
    speedup: Interval | None = None
    #: The peak of each device, less what it held before; empty where that is unknown.
    memory: tuple[DeviceMemory, ...] = ()
    #: What a step copies between devices, collectives included; ``None`` where that is unknown.
    copied_bytes: int | None = None
    #: Lines that differ from the script for one device.
    lines: int | None = None
    #: The script, ready to run beside the user's file.
    code: str = ""

    @property
    def is_right(self) -> bool:
        """Whether its results are those of one device, or it is that device."""
        return self.judgement in ("baseline", "proved", "verified")


@dataclass(frozen=True, slots=True)
class Advice:
    """All ways that were tried, in order. ``chosen`` names the recommended one; empty without a baseline."""

    target: str
    spec: str
    #: What the devices are, and whether their speedups say something about other devices of their kind.
    label: str
    gates: bool
    kind: str
    #: What a step is, such as ``a training step``, and the rows of its batch.
    step: str
    rows: int | None
    ways: tuple[Way, ...]
    chosen: str = ""
    recommendation: str = ""
    limits: str = ""
    complete: bool = True
    elapsed_s: float = 0.0
    schema_version: int = ADVICE_SCHEMA_VERSION
