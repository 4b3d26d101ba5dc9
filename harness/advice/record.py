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

_NOTHING = "\N{EN DASH}"
#: Characters of a reason in a notebook; the record has all of it.
_REASON = 300


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

    @property
    def sentence(self) -> str:
        """What is known of it, in a line."""
        if self.time_ns is None:
            return f"{self.name}: {self.judgement}"
        speedup = "" if self.speedup is None else f", speedup {self.speedup.value:.2f}"
        return f"{self.name}: {self.time_ns / 1e6:.2f} ms a step{speedup}"

    def _cells(self) -> tuple[str, ...]:
        """A row of a table: name, judgement, milliseconds of a step, speedup, memory, lines."""
        speedup = "1" if self.judgement == "baseline" else _NOTHING
        if self.speedup is not None:
            speedup = f"{self.speedup.value:.3g} ({self.speedup.lower:.3g} to {self.speedup.upper:.3g})"
        time = _NOTHING if self.time_ns is None else f"{self.time_ns / 1e6:.3g}"
        held = [f"{each.peak_bytes / 2**20:,.3g}" for each in self.memory if each.peak_bytes]
        lines = _NOTHING if self.lines is None else str(self.lines)
        return self.name, self.judgement, time, speedup, ", ".join(held) or _NOTHING, lines


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

    @property
    def script(self) -> str:
        """The script of the recommended way, to run beside the module of ``build``; empty without one."""
        return next((way.code for way in self.ways if way.name == self.chosen), "")

    def __repr__(self) -> str:
        return f"<Advice {self.recommendation}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the recommendation, the ways with their figures, and what was found about them."""
        from harness.notebook import block, listed, small, table

        head = ("way", "correct", "ms a step", "speedup", "peak of each device, MiB", "lines")
        shown = table(head, [way._cells() for way in self.ways])
        found = [f"{way.name}: {_shortened(way.reason)}" for way in self.ways if way.reason]
        incomplete = [] if self.complete else ["Interrupted: not all ways were tried."]
        said = [each for each in (self.recommendation, *incomplete) if each]
        return block("Advice", said, small(self.limits), shown, listed(found))


def _shortened(text: str) -> str:
    return text if len(text) <= _REASON else f"{text[: _REASON - 1]}…"
