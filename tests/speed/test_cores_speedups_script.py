"""``tests/benchmarks/scripts/cores_speedups.py`` measures device sets in turn, and only what is missing."""

from __future__ import annotations

import runpy
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from synthetic_runs import record, run, write

import harness.speed.command
from harness.speed.baseline import SavedRun

_SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "scripts" / "cores_speedups.py"
_SPEEDUPS = {"cores:2": 1.8, "softgpu:2": 1.2}


def test_device_sets_take_turns_and_what_was_measured_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[str] = []

    def measure(command: Sequence[str], file: Path) -> SavedRun:
        assert shutil.which(command[0]), command
        spec = command[-1].removeprefix("--harness-devices=")
        measured.append(spec)
        names = ("test_powers_of_one_matrix_a_device", "test_training_step_against_a_tape_outside_of_the_scopes")
        # Scattered, so that three runs differ.
        found = {name: record(_SPEEDUPS[spec], seed=len(measured)) for name in names}
        write(file, found)
        return run(found)

    monkeypatch.setattr(harness.speed.command, "measure", measure)
    for runs in ("2", "3"):
        monkeypatch.setattr(
            sys,
            "argv",
            ["cores_speedups", "--devices", ",".join(_SPEEDUPS), "--runs", runs, "--results", str(tmp_path)],
        )
        runpy.run_path(str(_SCRIPT), run_name="__main__")
    assert measured == ["cores:2", "softgpu:2"] * 3
    lines = [line for line in capsys.readouterr().out.splitlines() if "typical" in line and "of 3 runs" in line]
    assert [line.partition(": ")[0] for line in lines] == ["cores:2", "softgpu:2"] * 2
    for line in lines:
        assert f"typical calls: {_SPEEDUPS[line.partition(': ')[0]]:.1f}" in line, line
