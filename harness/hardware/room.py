"""Free and used memory: of the host, and of a GPU that TensorFlow uses."""

from __future__ import annotations

import ctypes
from pathlib import Path

from harness._tensorflow import memory_limits
from harness.devices.device import Device
from harness.devices.nvidia import free_bytes
from harness.lazy import tf

_MIB = 1024 * 1024
#: Upper bound of what a CUDA context and its libraries take besides TensorFlow's pool: 0.4 to 0.9 GiB on recent cards.
CONTEXT_BYTES = 1024 * _MIB

_CGROUP = Path("/sys/fs/cgroup")


def host_free_bytes(cgroup: Path = _CGROUP) -> int:
    """Return what this process can still allocate: what the host has available, or what its cgroup leaves of it."""
    import psutil

    available = int(psutil.virtual_memory().available)
    limited = _cgroup_free_bytes(cgroup)
    return available if limited is None else max(min(available, limited), 0)


def give_back_unused_memory() -> None:
    """Return memory that this process has freed to the system.

    glibc keeps it in the arena of one thread, where other threads cannot use it.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
    if trim is not None:
        trim(0)


def host_used_bytes(process: int | None = None) -> int | None:
    """Return the resident memory of this process, or of the one with this id; ``None`` if that has ended."""
    import psutil

    try:
        return int(psutil.Process(process).memory_info().rss)
    except psutil.Error:
        return None


def _cgroup_free_bytes(folder: Path) -> int | None:
    """Return what a container's limit leaves, counting reclaimable file cache as free."""
    for limit, usage, statistics, inactive in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        try:
            allowed = int((folder / limit).read_text(encoding="ascii"))
            used = int((folder / usage).read_text(encoding="ascii"))
            lines = (folder / statistics).read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):  # missing, or "max": no limit
            continue
        cache = next((int(value) for key, _, value in (line.partition(" ") for line in lines) if key == inactive), 0)
        return allowed - used + cache
    return None


def gpu_used_bytes(device: Device) -> int | None:
    """Return what TensorFlow's tensors take of a GPU, as counted by its allocator."""
    try:
        return int(tf.config.experimental.get_memory_info(device.parsed.short)["current"])
    except (ValueError, RuntimeError):  # the allocator does not count
        return None


def gpu_free_bytes(device: Device, uuid: str | None) -> int | None:
    """Return the free memory of a GPU: of the card if memory grows, otherwise of TensorFlow's pool."""
    if _grows(device):
        return free_bytes(uuid)
    # Without memory growth TensorFlow takes its whole pool with the first tensor and nothing more after that. What the
    # driver reports as free is then only what is left beside the pool.
    used, limit = gpu_used_bytes(device), _limit_bytes(device)
    return None if used is None or limit is None else max(limit - used, 0)


def _limit_bytes(device: Device) -> int | None:
    """Return the size of TensorFlow's pool on a GPU; ``None`` if unknown."""
    limit = _logical_limit_bytes(device)
    return limit if limit is not None else memory_limits().get(device.name) or None


def _logical_limit_bytes(device: Device) -> int | None:
    """Return the limit of a logical GPU. They are numbered card by card."""
    index = device.parsed.index
    if index is None:
        return None
    for physical in tf.config.get_visible_devices("GPU"):
        parts = tf.config.get_logical_device_configuration(physical) or [None]
        if index < len(parts):
            limit = getattr(parts[index], "memory_limit", None)
            return None if limit is None else int(limit) * _MIB
        index -= len(parts)
    return None


def _grows(device: Device) -> bool:
    physical = next((one for one in tf.config.list_physical_devices("GPU") if one.name == device.physical), None)
    return physical is not None and bool(tf.config.experimental.get_memory_growth(physical))


def in_host_room(device: Device) -> bool:
    """Return whether a device uses the memory of this host: a CPU of this process, or a server of ``cores:N``."""
    return device.kind in ("logical-cpu", "core")
