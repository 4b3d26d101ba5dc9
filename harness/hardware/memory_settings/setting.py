"""The memory settings of TensorFlow, and what processes get with them."""

from __future__ import annotations

from dataclasses import dataclass

#: What is allocated at a time, in MiB.
CHUNK_MIB = 16


@dataclass(frozen=True, slots=True)
class MemorySetting:
    """A setting of TensorFlow: ``growth``, a ``limit``, or a ``split`` into logical devices with a limit each.

    ``parts`` is the number of logical devices, ``limit_mib`` the limit of each (``None``: none), ``tried_mib`` what is
    allocated on each.
    """

    name: str
    parts: int
    limit_mib: int | None
    tried_mib: int


#: Small, so that they fit beside whatever else is on a card.
GROWTH = MemorySetting("growth", 1, None, 64)
LIMIT = MemorySetting("limit", 1, 256, 512)
SPLIT = MemorySetting("split", 2, 128, 256)
#: TensorFlow has neither growth nor limits for a CPU.
CPU_SPLIT = MemorySetting("split", 2, None, 64)


@dataclass(frozen=True, slots=True)
class MemorySeen:
    """What a process with a setting got.

    ``parts`` are the logical devices of the card, as short names; ``had_bytes`` is what was allocated on each and held
    until the end; ``placed`` is where that was; ``wrong`` counts the buffers that had changed at the end;
    ``free_bytes`` was free on the card before, and ``held_bytes`` is what the process held at the end, both reported by
    the driver (``None``: unknown).
    """

    parts: tuple[str, ...]
    had_bytes: tuple[int, ...]
    placed: tuple[str, ...]
    wrong: int
    free_bytes: int | None
    held_bytes: int | None
