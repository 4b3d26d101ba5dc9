"""How much memory there is room for, and how much is in use: of the host, and of a GPU that TensorFlow works on."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from harness.devices.device import Device
from harness.devices.name import DeviceName
from harness.devices.nvidia import memory_by_process, read_cards

_MIB = 1024 * 1024
#: What a CUDA context and its libraries take of a card besides TensorFlow's own pool. They take 0.4 to 0.9 GiB on
#: recent cards, so that this is on the safe side.
CONTEXT_BYTES = 1024 * _MIB

_CGROUP = Path("/sys/fs/cgroup")


def host_free_bytes(cgroup: Path = _CGROUP) -> int:
    """Memory that this process could still have: what the host has available, or what its cgroup leaves of it."""
    import psutil

    available = int(psutil.virtual_memory().available)
    limited = _cgroup_free_bytes(cgroup)
    return available if limited is None else max(min(available, limited), 0)


def give_back_unused_memory() -> None:
    """Hand memory that was freed in this process back to the system, which glibc keeps for later otherwise.

    What it keeps in the arena of one thread is no use to another, so that a process could run out of what it has freed.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
    if trim is not None:
        trim(0)


def host_used_bytes(process: int | None = None) -> int | None:
    """Resident memory of this process, or of the one with this id; ``None`` where that has ended."""
    import psutil

    try:
        return int(psutil.Process(process).memory_info().rss)
    except psutil.Error:
        return None


def _cgroup_free_bytes(folder: Path) -> int | None:
    """What a container's limit leaves, with the file cache that would be given up counted as free."""
    for limit, usage, statistics, inactive in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        try:
            allowed = int((folder / limit).read_text(encoding="ascii"))
            used = int((folder / usage).read_text(encoding="ascii"))
            lines = (folder / statistics).read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):  # not there, or "max": no limit
            continue
        cache = next((int(value) for key, _, value in (line.partition(" ") for line in lines) if key == inactive), 0)
        return allowed - used + cache
    return None


def gpu_used_bytes(device: Device) -> int | None:
    """What TensorFlow's tensors take of a GPU now, as its allocator counts it."""
    import tensorflow as tf

    try:
        return int(tf.config.experimental.get_memory_info(device.parsed.short)["current"])
    except (ValueError, RuntimeError):  # a device without an allocator that counts
        return None


def gpu_free_bytes(device: Device, uuid: str | None) -> int | None:
    """What a GPU has room for: of a logical GPU, of the pool that TensorFlow holds already, or of the card."""
    import tensorflow as tf

    used = gpu_used_bytes(device)
    limit = _logical_limit_bytes(tf, device)
    if limit is not None:
        return max(limit - used, 0) if used is not None else None
    card = next((card for card in read_cards() if card.uuid == uuid), None)
    if card is None:
        return None
    free = card.free_mib * _MIB
    if used is None or _grows(tf, device):
        return free
    # Without memory growth TensorFlow takes nearly the whole card with its first tensor, and nothing more after that.
    held = _held_bytes(uuid, memory_by_process())
    pool = held - CONTEXT_BYTES if held is not None else 0
    return max(pool - used, 0) if pool > free else free


def _held_bytes(uuid: str | None, by_process: dict[tuple[str, int], int | None]) -> int | None:
    """Memory of the card that this process holds. In a container its id is another one; then it has to be alone."""
    of_card = {process: mib for (card, process), mib in by_process.items() if card == uuid}
    mib = of_card.get(os.getpid())
    if mib is None and len(of_card) == 1:
        (mib,) = of_card.values()
    return None if mib is None else mib * _MIB


def _physical(tensorflow: Any, device: Device) -> Any | None:
    return next((one for one in tensorflow.config.list_physical_devices("GPU") if one.name == device.physical), None)


def _logical_limit_bytes(tensorflow: Any, device: Device) -> int | None:
    """The limit of a logical GPU: they are numbered card by card."""
    index = device.parsed.index
    if index is None:
        return None
    for physical in tensorflow.config.get_visible_devices("GPU"):
        parts = tensorflow.config.get_logical_device_configuration(physical) or [None]
        if index < len(parts):
            limit = getattr(parts[index], "memory_limit", None)
            return None if limit is None else int(limit) * _MIB
        index -= len(parts)
    return None


def _grows(tensorflow: Any, device: Device) -> bool:
    physical = _physical(tensorflow, device)
    return physical is not None and bool(tensorflow.config.experimental.get_memory_growth(physical))


def is_here(device: DeviceName) -> bool:
    """Whether a device is one of this process."""
    return device.job in (None, "localhost")


def in_host_room(device: Device) -> bool:
    """Whether a device has its memory from this host: a CPU of this process, or a server of ``cores:N``."""
    return device.kind in ("logical-cpu", "core")
