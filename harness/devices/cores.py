"""The CPU cores that this process may use: one CPU for each physical core, from its affinity and from ``/sys``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_SYS = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")


def allowed_cpus() -> frozenset[int]:
    """The CPUs that this process may run on (its affinity mask, which a container's cpuset narrows too)."""
    return frozenset(os.sched_getaffinity(0))


def usable_cores(allowed: Iterable[int] | None = None, sys: Path = _SYS) -> tuple[int, ...]:
    """For each physical core with a CPU in ``allowed``, the lowest of those CPUs; sorted.

    CPUs that share a core (hyper-threads) share its arithmetic units: two devices on one would slow each other down.
    ``allowed`` is by default what this process may run on. A CPU of which ``/sys`` does not say which core it belongs
    to counts as a core of its own.
    """
    cores: dict[object, int] = {}
    for cpu in sorted(allowed_cpus() if allowed is None else allowed):
        cores.setdefault(_core_of(cpu, sys), cpu)
    return tuple(sorted(cores.values()))


def _core_of(cpu: int, sys: Path) -> object:
    """The core of a CPU: its package, and its number there, which is unique in a package alone."""
    try:
        topology = sys / f"cpu{cpu}" / "topology"
        return (
            int((topology / "physical_package_id").read_text(encoding="ascii")),
            int((topology / "die_id").read_text(encoding="ascii")) if (topology / "die_id").exists() else 0,
            int((topology / "core_id").read_text(encoding="ascii")),
        )
    except (OSError, ValueError):
        return cpu


def allowed_cpu_time(cgroup: Path = _CGROUP) -> float | None:
    """How many CPUs' worth of time this process may take, from its container's quota; ``None`` where there is none.

    Two cores under a quota of one are throttled in turn: what runs on both is no faster than on one.
    """
    try:
        quota, period = (cgroup / "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        try:  # the older form of control groups
            quota = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
            period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return None
    try:
        allowed = float(quota) / float(period)
    except ValueError:  # "max"
        return None
    return allowed if allowed > 0 else None
