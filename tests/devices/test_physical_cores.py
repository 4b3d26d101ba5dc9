"""Which CPUs are cores of their own, from trees like ``/sys`` and ``/sys/fs/cgroup``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.devices.cores import allowed_cpu_time, usable_cores


def _topology(folder: Path, cores: dict[int, tuple[int, int]]) -> Path:
    """A tree with the package and the core of each CPU."""
    for cpu, (package, core) in cores.items():
        topology = folder / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{package}\n", encoding="ascii")
        (topology / "core_id").write_text(f"{core}\n", encoding="ascii")
    return folder


def test_of_two_threads_of_a_core_the_first_is_taken(tmp_path: Path) -> None:
    sys = _topology(tmp_path, {0: (0, 0), 1: (0, 1), 2: (0, 0), 3: (0, 1)})
    assert usable_cores({0, 1, 2, 3}, sys) == (0, 1)
    assert usable_cores({1, 2, 3}, sys) == (1, 2), "CPU 0 is not allowed, and CPU 2 is on the same core"
    assert usable_cores({1, 3}, sys) == (1,)


def test_cores_of_one_number_in_two_packages_are_two_cores(tmp_path: Path) -> None:
    assert usable_cores({0, 1}, _topology(tmp_path, {0: (0, 0), 1: (1, 0)})) == (0, 1)


def test_a_cpu_of_which_nothing_is_known_is_a_core_of_its_own(tmp_path: Path) -> None:
    assert usable_cores({2, 7}, tmp_path) == (2, 7)


def test_those_of_this_process_are_among_the_cpus_that_it_may_use() -> None:
    cores = usable_cores()
    assert cores
    assert set(cores) <= os.sched_getaffinity(0)


@pytest.mark.parametrize(("text", "cpus"), [("max 100000", None), ("150000 100000", 1.5), ("nonsense", None)])
def test_a_quota_of_cpu_time_is_read(tmp_path: Path, text: str, cpus: float | None) -> None:
    (tmp_path / "cpu.max").write_text(f"{text}\n", encoding="ascii")
    assert allowed_cpu_time(tmp_path) == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("-1", None), ("200000", 2.0)])
def test_a_quota_of_the_older_form_is_read(tmp_path: Path, quota: str, cpus: float | None) -> None:
    assert allowed_cpu_time(tmp_path) is None
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n", encoding="ascii")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n", encoding="ascii")
    assert allowed_cpu_time(tmp_path) == cpus
