"""The CPU cores that this process may use, from its affinity and ``/sys``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_SYS = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")


def allowed_cpus() -> frozenset[int]:
    """List the CPUs that this process may run on: its affinity mask, which a container's cpuset narrows too."""
    return frozenset(os.sched_getaffinity(0))


def usable_cores(allowed: Iterable[int] | None = None, sys: Path = _SYS) -> tuple[int, ...]:
    """List the lowest CPU in ``allowed`` of each physical core, sorted.

    Hyper-threads share the arithmetic units of a core: two devices on one would slow each other down. ``allowed`` is by
    default the affinity of this process. A CPU whose core is unknown counts as a core.
    """
    cores: dict[object, int] = {}
    for cpu in sorted(allowed_cpus() if allowed is None else allowed):
        cores.setdefault(_core_of(cpu, sys), cpu)
    return tuple(sorted(cores.values()))


def _core_of(cpu: int, sys: Path) -> object:
    """Identify the core of a CPU by package, die and number: the number is only unique in a package."""
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
    """Read the CPU quota of the container, in CPUs; ``None`` without one.

    Two cores under a quota of one are throttled: they are no faster than one.
    """
    # The second are the files of the older form of control groups.
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with suppress(OSError, ValueError):  # missing, or "max": no limit
            quota, period = " ".join((cgroup / name).read_text(encoding="ascii") for name in names).split()
            allowed = float(quota) / float(period)
            return allowed if allowed > 0 else None
    return None
