"""What a profile says of the buffers that allocators gave out and took back, in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from harness.speed.memory.errors import MemoryUnknown
from harness.speed.timeline.host import CALL_MARK
from harness.speed.timeline.planes import OP, innermost, nested
from harness.speed.timeline.xplane import Capture, Event
from harness.tensorflow_version import (
    ALLOCATION,
    ALLOCATOR_NAME,
    BUFFER_ADDRESS,
    BUFFER_BYTES,
    BUFFER_OP,
    BUFFER_REGION,
    DEALLOCATION,
    EAGER_CALL,
    FREE_BYTES,
    GIVEN_BYTES,
    IN_USE_BYTES,
    SUPPORTED,
)


@dataclass(frozen=True, slots=True)
class Change:
    """A buffer that an allocator gave out, or took back (``asked_bytes`` is then ``None``).

    ``op`` is the name of the op that it is for; of an eager op its type, and ``eager`` is how many of this type the
    thread had started before in the call. ``given_bytes`` is its size as rounded up, ``in_use_bytes`` what
    the allocator has given out after the change, and ``limit_bytes`` the most that it may: the allocator of CPUs tells
    none of them.
    """

    at_ns: int
    address: int
    asked_bytes: int | None
    op: str = ""
    eager: int | None = None
    region: str = ""
    given_bytes: int = 0
    in_use_bytes: int | None = None
    limit_bytes: int | None = None


def changes(capture: Capture) -> dict[str, list[Change]]:
    """All changes of a process by the name of the allocator, those of the CPUs as ``cpu``.

    Raises:
        MemoryUnknown: the profile names no buffers.
    """
    found: dict[str, list[Change]] = {}
    for lines in capture.planes.values():
        for line in lines:
            started: Counter[str] = Counter()
            for event, outer in nested(line.events):
                if event.name == CALL_MARK:
                    started.clear()
                elif event.name == EAGER_CALL:
                    started[str(event.stats.get("eager_op"))] += 1
                elif event.name in (ALLOCATION, DEALLOCATION):
                    name = str(event.stats.get(ALLOCATOR_NAME, ""))
                    name = "cpu" if "cpu" in name.lower() else name
                    found.setdefault(name, []).append(_change(event, outer, started))
    return {name: sorted(each, key=lambda change: change.at_ns) for name, each in found.items()}


def _change(event: Event, outer: list[Event], started: Counter[str]) -> Change:
    stats = event.stats
    if BUFFER_ADDRESS not in stats:
        raise MemoryUnknown(str(stats.get(ALLOCATOR_NAME)), f"the profile names no buffers; use TensorFlow {SUPPORTED}")
    asked = int(stats[BUFFER_BYTES]) if event.name == ALLOCATION else None
    # The allocator of CPUs has no statistics: they are 0.
    keeps = bool(stats.get(GIVEN_BYTES))
    in_use = int(stats[IN_USE_BYTES]) if keeps else None
    op = str(stats.get(BUFFER_OP, "")) or next(_ops_around(outer), "")
    call = innermost(outer, EAGER_CALL)
    is_eager = call is not None and call.stats.get("eager_op") == op
    return Change(
        event.begin_ns,
        int(stats[BUFFER_ADDRESS]),
        asked,
        op,
        started[op] - 1 if is_eager else None,
        str(stats.get(BUFFER_REGION, "")),
        int(stats[GIVEN_BYTES]) if keeps else asked or 0,
        in_use,
        in_use + int(stats[FREE_BYTES]) if in_use is not None and FREE_BYTES in stats else None,
    )


def _ops_around(outer: list[Event]) -> Iterator[str]:
    return (match["name"] for event in reversed(outer) if (match := OP.match(event.name)))
