"""How much memory there is room for, and how much is in use: of the host, and of a GPU that TensorFlow works on."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from harness._tensorflow import memory_limits
from harness.devices.device import Device
from harness.devices.nvidia import read_cards

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
    """What a GPU has room for: of the card where memory grows, else of what TensorFlow may have of it."""
    import tensorflow as tf

    if _grows(tf, device):
        card = next((card for card in read_cards() if card.uuid == uuid), None)
        return None if card is None else card.free_mib * _MIB
    # Without memory growth TensorFlow takes its whole pool with the first tensor, and nothing more after that. What the
    # driver then calls free is what is left beside the pool, and in a container it does not say who holds what.
    used, limit = gpu_used_bytes(device), _limit_bytes(tf, device)
    return None if used is None or limit is None else max(limit - used, 0)


def _physical(tensorflow: Any, device: Device) -> Any | None:
    return next((one for one in tensorflow.config.list_physical_devices("GPU") if one.name == device.physical), None)


def _limit_bytes(tensorflow: Any, device: Device) -> int | None:
    """What TensorFlow may have of a GPU in all; ``None`` where it does not say."""
    limit = _logical_limit_bytes(tensorflow, device)
    return limit if limit is not None else memory_limits().get(device.name) or None


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


def in_host_room(device: Device) -> bool:
    """Whether a device has its memory from this host: a CPU of this process, or a server of ``cores:N``."""
    return device.kind in ("logical-cpu", "core")
