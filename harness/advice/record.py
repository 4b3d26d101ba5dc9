"""The record of an advice, stored as ``advice.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.speed.memory.sizes import size_text
from harness.speed.record import DeviceMemory, Interval

#: Version of the stored form of :class:`Advice`. A reader accepts this one and all earlier ones.
ADVICE_SCHEMA_VERSION = 2

#: ``baseline``: one device, with which all others are compared. ``proved``: computes the same for every input, as far
#: as ``reason`` says. ``verified``: computed the same on the example batch. ``wrong``: did not. ``not comparable``: it
#: could not be tried, or not be compared.
Judgement = Literal["baseline", "proved", "verified", "wrong", "not comparable"]
#: The name of the way that all others are compared with.
BASELINE = "one device"
#: The name of the way that runs the program on the host.
CPU = "CPU"

#: The columns of the table of ways.
HEAD = ("way", "correct", "step", "speedup", "memory", "lines")
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
    #: Where the time is predicted: it lies between these.
    time_interval_ns: tuple[float, float] | None = None
    #: The peak of each device, less what it held before; empty where that is unknown.
    memory: tuple[DeviceMemory, ...] = ()
    #: What a step copies between devices, collectives included; ``None`` where that is unknown.
    copied_bytes: int | None = None
    #: Lines that differ from the script for one device.
    lines: int | None = None
    #: The script, ready to run beside the user's file.
    code: str = ""
    #: Whether its peaks surely fit into the memory of a device; ``None`` where that is not asked, or not known.
    fits: bool | None = None

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
        predicted = "predicted " if self.time_interval_ns else ""
        return f"{self.name}: {predicted}{self.time_ns / 1e6:.2f} ms a step{speedup}"

    @property
    def cells(self) -> tuple[str, ...]:
        """A row of the table, as ``HEAD`` names its columns."""
        words = {"baseline": _NOTHING, "wrong": "WRONG"}
        speedup = "1" if self.judgement == "baseline" else _NOTHING
        if self.speedup is not None:
            value, lower, upper = map(_ratio, (self.speedup.value, self.speedup.lower, self.speedup.upper))
            speedup = f"{value} ({lower}-{upper})"
        step = _NOTHING if self.time_ns is None else milliseconds(self.time_ns)
        held = [f"{each.device} {short_size(each.peak_bytes)}" for each in self.memory if each.peak_bytes]
        lines = _NOTHING if self.lines is None else str(self.lines)
        judgement = words.get(self.judgement, self.judgement)
        return self.name, judgement, step, speedup, "\n".join(held) or _NOTHING, lines


def milliseconds(time_ns: float) -> str:
    """A time with three digits."""
    return f"{float(f'{time_ns / 1e6:.3g}'):,.9g} ms"


def short_size(size_bytes: float) -> str:
    """A size with three digits."""
    amount, unit = size_text(size_bytes).split()
    return f"{float(amount):.3g} {unit}" if float(amount) < 1000 else f"{float(amount):.0f} {unit}"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.3g}"


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
    #: The cards for which times are predicted, such as ``8 H100 SXM``; empty where they are measured.
    cards: str = ""
    #: The memory that a device has, in bytes, if the user gave it.
    memory_bytes: int | None = None
    schema_version: int = ADVICE_SCHEMA_VERSION

    @property
    def head(self) -> tuple[str, ...]:
        """The headings of the table of ways, which say what is predicted."""
        return tuple(f"predicted {each}" if self.cards and each in ("step", "speedup") else each for each in HEAD)

    @property
    def script(self) -> str:
        """The script of the recommended way, to run beside the module of ``build``; empty without one."""
        return next((way.code for way in self.ways if way.name == self.chosen), "")

    def __repr__(self) -> str:
        return f"<Advice {self.recommendation}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the recommendation, the ways with their figures, and what was found about them."""
        from harness.notebook import block, listed, small, table

        shown = table(self.head, [way.cells for way in self.ways])
        found = [f"{way.name}: {_shortened(way.reason)}" for way in self.ways if way.reason]
        incomplete = [] if self.complete else ["Interrupted: not all ways were tried."]
        said = [each for each in (self.recommendation, *incomplete) if each]
        return block("Advice", said, small(self.limits), shown, listed(found))


def _shortened(text: str) -> str:
    return text if len(text) <= _REASON else f"{text[: _REASON - 1]}…"
