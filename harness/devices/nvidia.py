"""Asks the NVIDIA driver for its GPUs. Everything here is ``None`` or empty without a driver.

TensorFlow, CUDA and the driver number GPUs differently (``CUDA_VISIBLE_DEVICES`` and CUDA's speed order renumber them),
so a GPU is identified by its UUID, never by an index.
"""

from __future__ import annotations

import ctypes
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MIB = 1024 * 1024
_KERNEL_MODULE = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True, slots=True)
class Card:
    """One card as the driver reports it. ``uuid`` is in the driver's form, ``GPU-xxxxxxxx-xxxx-…``."""

    name: str
    uuid: str
    total_mib: int
    free_mib: int
    index: int | None = None
    pci: str | None = None


@contextmanager
def opened_nvml() -> Iterator[Any | None]:
    """Open the driver's management library; ``None`` without ``nvidia-ml-py`` or a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except ImportError:
        yield None
        return
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def read_cards(library: Any = None) -> tuple[Card, ...]:
    """Return the cards in the driver's order, without those that have fallen off the bus and answer nothing.

    ``library`` is an open ``pynvml``, by default the one of this machine.
    """
    if library is None:
        with opened_nvml() as found:
            return () if found is None else read_cards(found)
    cards = []
    with suppress(library.NVMLError):
        for index in range(library.nvmlDeviceGetCount()):
            with suppress(library.NVMLError):
                cards.append(_card(library, library.nvmlDeviceGetHandleByIndex(index), index))
    return tuple(cards)


def memory_by_process() -> dict[tuple[str, int], int | None]:
    """Return the GPU memory of processes: (UUID of the card, process id) to MiB, ``None`` if the driver hides it.

    In a container the driver may name processes by ids that mean nothing inside.
    """
    used: dict[tuple[str, int], int | None] = {}
    with opened_nvml() as library:
        if library is None:
            return used
        with suppress(library.NVMLError):
            for index in range(library.nvmlDeviceGetCount()):
                handle = library.nvmlDeviceGetHandleByIndex(index)
                uuid = _text(library.nvmlDeviceGetUUID(handle))
                for process in library.nvmlDeviceGetComputeRunningProcesses(handle):
                    mib = process.usedGpuMemory
                    used[uuid, int(process.pid)] = None if mib is None else int(mib) // _MIB
    return used


def _card(library: Any, handle: Any, index: int) -> Card:
    memory = library.nvmlDeviceGetMemoryInfo(handle)
    return Card(
        name=_text(library.nvmlDeviceGetName(handle)),
        uuid=_text(library.nvmlDeviceGetUUID(handle)),
        total_mib=int(memory.total) // _MIB,
        free_mib=int(memory.free) // _MIB,
        index=index,
        pci=_pci(library, handle),
    )


def _pci(library: Any, handle: Any) -> str | None:
    """Return the bus id as the kernel writes it: ``0000:3B:00.0`` of NVML's ``00000000:3B:00.0``."""
    try:
        text = _text(library.nvmlDeviceGetPciInfo(handle).busId)
    except (library.NVMLError, AttributeError):
        return None
    domain, separator, rest = text.partition(":")
    return f"{domain[-4:]}{separator}{rest}" if separator and len(domain) > 4 else text


def _text(value: str | bytes) -> str:
    """Decode what older releases of nvidia-ml-py return as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def cuda_uuids(library: Any = None) -> tuple[str, ...]:
    """List the UUIDs of the GPUs in CUDA's order in this process, which is TensorFlow's. Empty if unknown.

    ``library`` is the CUDA driver API, by default ``libcuda.so.1``. No context is made, so no memory is used.
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
    """Match TensorFlow's ``count`` GPUs to cards, ``None`` where the match is uncertain.

    TensorFlow leaves out GPUs that are too old, and CUDA's order is then ambiguous.
    """
    by_uuid = {card.uuid: card for card in cards}
    if len(uuids) == count:
        return tuple(by_uuid.get(uuid) for uuid in uuids)
    if count == len(cards) == 1:
        return (cards[0],)
    return (None,) * count


def driver_version(kernel_module: Path = _KERNEL_MODULE) -> str | None:
    """Read the driver version, such as ``550.54.15``, from the kernel module's file."""
    try:
        text = kernel_module.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", text)
    return match[0] if match else None
