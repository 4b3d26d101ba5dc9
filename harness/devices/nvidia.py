"""What the NVIDIA driver says of the cards. Everything here is ``None`` or empty where there is no driver.

TensorFlow, CUDA and the driver number the cards differently (``CUDA_VISIBLE_DEVICES`` and CUDA's own order of speed
both renumber), so that a card is known by its UUID, never by an index.
"""

from __future__ import annotations

import ctypes
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MIB = 1024 * 1024
_KERNEL_MODULE = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True, slots=True)
class Card:
    """One card as the driver knows it. ``uuid`` is in the driver's form, ``GPU-xxxxxxxx-xxxx-…``."""

    name: str
    uuid: str
    total_mib: int
    free_mib: int


def read_cards() -> tuple[Card, ...]:
    """The cards, through the driver's management library. Empty without ``nvidia-ml-py``, driver or cards."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return tuple(_card(pynvml, handle) for handle in handles)
    except pynvml.NVMLError:
        # A card that has fallen off the bus answers nothing: what is not known is left out, nothing depends on it.
        return ()
    finally:
        pynvml.nvmlShutdown()


def memory_by_process() -> dict[tuple[str, int], int | None]:
    """GPU memory that processes use: (UUID of the card, process id) to MiB. Empty where the driver does not say.

    ``None``: the process is there, and the driver does not say how much it has.

    In a container the driver may name processes by ids that mean nothing inside.
    """
    try:
        import pynvml
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    used: dict[tuple[str, int], int | None] = {}
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
                mib = process.usedGpuMemory
                used[uuid, int(process.pid)] = None if mib is None else int(mib) // _MIB
    except pynvml.NVMLError:
        return used
    finally:
        pynvml.nvmlShutdown()
    return used


def _card(pynvml: Any, handle: Any) -> Card:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Card(
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        total_mib=int(memory.total) // _MIB,
        free_mib=int(memory.free) // _MIB,
    )


def _text(value: str | bytes) -> str:
    """Older releases of nvidia-ml-py answer in bytes."""
    return value.decode() if isinstance(value, bytes) else value


def cuda_uuids(library: Any = None) -> tuple[str, ...]:
    """UUIDs of the cards in CUDA's order in this process, which is TensorFlow's. Empty where CUDA cannot tell.

    ``library`` is the CUDA driver API, by default ``libcuda.so.1``. No context is made, so that no memory is taken.
    """
    if library is None:
        try:
            library = ctypes.CDLL("libcuda.so.1")
        except OSError:
            return ()
    count = ctypes.c_int()
    if library.cuInit(0) != 0 or library.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    found = []
    for index in range(count.value):
        device = ctypes.c_int()
        raw = (ctypes.c_ubyte * 16)()
        if library.cuDeviceGet(ctypes.byref(device), index) != 0:
            return ()
        if library.cuDeviceGetUuid(ctypes.byref(raw), device) != 0:
            return ()
        found.append(f"GPU-{uuid.UUID(bytes=bytes(raw))}")
    return tuple(found)


def match_cards(count: int, cards: Sequence[Card], uuids: Sequence[str]) -> tuple[Card | None, ...]:
    """The card behind each of TensorFlow's ``count`` GPUs, ``None`` where it is not certain which one it is.

    TensorFlow leaves out cards that are too old for it; then CUDA's order does not say which is which.
    """
    by_uuid = {card.uuid: card for card in cards}
    if len(uuids) == count:
        return tuple(by_uuid.get(uuid) for uuid in uuids)
    if count == len(cards) == 1:
        return (cards[0],)
    return (None,) * count


def driver_version(kernel_module: Path = _KERNEL_MODULE) -> str | None:
    """Version of the driver, such as ``550.54.15``, from the kernel module's own file."""
    try:
        text = kernel_module.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", text)
    return match[0] if match else None
