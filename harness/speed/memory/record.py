"""The record of memory over time: how much each device held during a call, and what was alive at the peak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.devices.name import DeviceName
from harness.plural import plural
from harness.speed.memory.sizes import size_text

#: What a buffer is. ``inputs`` are tensors that the program holds between calls, constants and batches; ``unknown`` is
#: what the device held before that no Python object refers to.
Kind = Literal["variables", "slots", "inputs", "activations", "gradients", "temporaries", "unknown"]
KINDS: tuple[Kind, ...] = ("variables", "slots", "inputs", "activations", "gradients", "temporaries", "unknown")

#: Parts of a peak that a notebook shows.
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Alive:
    """Buffers of one kind, layer and line of the program that are alive at the peak.

    ``layer`` is the layer, or the name scope where there is none; ``line`` such as ``model.py:12``. Both may be empty.
    """

    kind: Kind
    layer: str
    line: str
    size_bytes: int
    buffers: int = 1


@dataclass(frozen=True, slots=True)
class Course:
    """The memory of one device during the call with the highest peak. Times are ns since that call began.

    ``held_bytes`` are the bytes of each kind (in the order of :data:`KINDS`) at each time in ``at_ns``; between two
    times are those of the first. ``rounding_bytes`` is how much of the peak was not asked for: the allocator rounds
    buffers up. ``limit_bytes`` is the most that the allocator may hold, ``None`` where it has no limit.
    """

    device: str
    source: str
    call: int
    peak_bytes: int
    peak_at_ns: int
    alive: tuple[Alive, ...]
    at_ns: tuple[int, ...]
    held_bytes: tuple[tuple[int, ...], ...]
    call_ns: int
    rounding_bytes: int | None = None
    limit_bytes: int | None = None

    def share_with_line(self) -> float:
        """The share of the bytes at the peak of which the line is known."""
        return sum(each.size_bytes for each in self.alive if each.line) / self.peak_bytes if self.peak_bytes else 1.0

    def bytes_by_kind(self) -> dict[Kind, int]:
        """The bytes of each kind at the peak, the kinds without any left out."""
        sums = {kind: sum(each.size_bytes for each in self.alive if each.kind == kind) for kind in KINDS}
        return {kind: size for kind, size in sums.items() if size}

    def __repr__(self) -> str:
        return f"<Course of the memory of {self._sentence()}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the peak, and what was alive then, the largest first."""
        from harness.notebook import block, small, table

        rows = [
            (size_text(each.size_bytes), each.kind, each.layer, each.line)
            for each in sorted(self.alive, key=lambda each: -each.size_bytes)[:_SHOWN]
        ]
        rest = len(self.alive) - len(rows)
        beyond = small(f"and {plural(rest, 'smaller part')}") if rest else ""
        return block("Memory", [self._sentence()], table(("size", "what", "layer", "line"), rows), beyond)

    def _sentence(self) -> str:
        name = DeviceName.parse(self.device).short
        parts = sorted(self.bytes_by_kind().items(), key=lambda item: -item[1])
        shares = ", ".join(f"{kind} {size / self.peak_bytes:.0%}" for kind, size in parts)
        return f"{name}: peak {size_text(self.peak_bytes)}{f' ({shares})' if shares else ''}; {self.source}"
