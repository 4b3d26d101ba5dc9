"""What a process with a memory setting would get on a described card."""

from __future__ import annotations

from collections.abc import Set

from harness.faults.machine.card_memory import CardMemory
from harness.hardware.memory_settings.setting import CHUNK_MIB, MemorySeen, MemorySetting

#: The time of a process that loads TensorFlow, in seconds.
SETTING_S = 8.0
_MIB = 2**20
#: What a CUDA context takes.
_CONTEXT_BYTES = 450 * _MIB
#: Share of a card that TensorFlow takes without growth and without a limit.
_WHOLE_SHARE = 0.92


def memory_seen(setting: MemorySetting, memory: CardMemory, ignored: Set[str]) -> MemorySeen:
    """Return what the process gets; ``ignored`` are the settings without effect."""
    works = setting.name not in ignored
    parts = setting.parts if works else 1
    each = setting.tried_mib
    if works and setting.limit_mib is not None:
        # One buffer less than the limit, because TensorFlow's own buffers need memory too.
        each = min(each, setting.limit_mib - CHUNK_MIB)
    room = memory.room_bytes
    had = []
    for _ in range(parts):
        had.append(min(each * _MIB, room) // (CHUNK_MIB * _MIB) * (CHUNK_MIB * _MIB))
        room -= had[-1]
    if works:
        held = _CONTEXT_BYTES + (setting.limit_mib or each) * _MIB * parts
    else:
        held = int(memory.room_bytes * _WHOLE_SHARE)
    place = "/job:localhost/replica:0/task:0/device:"
    names = tuple(f"GPU:{index}" for index in range(parts))
    return MemorySeen(
        parts=names,
        had_bytes=tuple(had),
        placed=tuple(place + name for name, bytes_had in zip(names, had, strict=True) if bytes_had),
        wrong=0,
        free_bytes=memory.free_bytes,
        held_bytes=min(held, memory.free_bytes),
    )
