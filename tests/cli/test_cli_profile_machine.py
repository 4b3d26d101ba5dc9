"""``harness profile-machine``: what it writes is what the loader reads, and what it refuses."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from command_line import run

from harness.hardware.profile import load_hardware_profile
from harness.hardware.profile_writer import SOURCE

pytestmark = pytest.mark.usefixtures("forked_workers")


def test_the_figures_of_this_machine_are_written_as_a_profile(tmp_path: Path) -> None:
    before = datetime.now(timezone.utc).date().isoformat()
    done = run(tmp_path, "profile-machine", "--devices", "cpu:2", "--output", "mine.toml", planted=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = load_hardware_profile(tmp_path / "mine.toml")
    figures = {each.figure: each for each in found.expected}
    products = {f"matmul {dtype}" for dtype in ("float64", "float32", "float16", "bfloat16", "int8")}
    copies = {f"copy {way}" for way in ("host-to-device", "device-to-host", "device-to-device")}
    assert set(figures) == products | copies | {"memory bandwidth"}, "a CPU has no TF32 and no PCIe link"
    assert all(each.value > 0.01 for each in figures.values())
    # Nothing that is taken for a copy may be none: memory of 10 TB/s is not there.
    assert all(each.value < 10_000 for each in figures.values())
    assert {each.source for each in figures.values()} == {SOURCE}
    assert before <= figures["matmul float32"].date <= datetime.now(timezone.utc).date().isoformat()
    assert found.name == f"{found.matches[0]}, measured"
    assert "matmul float32" in done.stdout
    assert "Profile: mine.toml" in done.stdout


def test_a_spec_that_nobody_could_configure_is_refused_at_once(tmp_path: Path) -> None:
    done = run(tmp_path, "profile-machine", "--devices", "cpu:zero", planted=False)
    assert done.returncode == 2
    assert "device spec 'cpu:zero'" in done.stderr
    assert not (tmp_path / "hardware-profile.toml").exists()


def test_devices_that_are_not_there_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    done = run(tmp_path, "profile-machine", "--devices", "gpu:64", "--output", "mine.toml", planted=False)
    assert done.returncode in (2, 3)
    assert "gpu:64" in done.stderr
    assert not (tmp_path / "mine.toml").exists()
