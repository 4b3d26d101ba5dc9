"""``--harness-speedup-by-machine``: runs are saved and found in a folder that is named by the fingerprint."""

from __future__ import annotations

import json
import re

import pytest
from gate_session import COMPARE, GateSession, both

pytest_plugins = ["gate_fixture"]

_BY_MACHINE = ("--harness-speedup-by-machine", "--benchmark-storage=profiles/benchmarks")


def test_a_run_is_saved_in_the_folder_of_its_machine(gate: GateSession) -> None:
    saved = gate.save(*_BY_MACHINE)
    assert saved.name == "0001_base.json"
    assert saved.parent.parent == gate.path / "profiles" / "benchmarks"
    assert re.search(r"-cpu-2-tf[0-9.]+-[0-9a-f]{12}$", saved.parent.name)
    assert gate.save(*_BY_MACHINE).name == "0002_base.json"


def test_the_baseline_is_found_there_by_the_gate_and_by_pytest_benchmark(gate: GateSession) -> None:
    gate.save(*_BY_MACHINE)
    result = gate.run(both(), *_BY_MACHINE, *COMPARE)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["PASS: no loss of speedup beyond 5.0% was shown in 2 benchmarks"])
    result.stdout.fnmatch_lines_random(["test_one (0001_base)*", "test_one (NOW)*"])
    lost = gate.run(both(one=1.6, second=1.6), *_BY_MACHINE, *COMPARE)
    assert lost.ret == pytest.ExitCode.TESTS_FAILED
    lost.stdout.fnmatch_lines(["FAIL: a loss of speedup beyond 5.0%*"])
    assert gate.run(both(), *_BY_MACHINE, "--benchmark-compare=0001", "--harness-speedup-fail=5%").ret == 0


def test_runs_of_other_machines_are_refused_with_the_fields_that_differ(gate: GateSession) -> None:
    saved = gate.save(*_BY_MACHINE)
    content = json.loads(saved.read_text())
    content["machine_info"]["harness"]["tensorflow"] = "1.0.0"
    (saved.parent.parent / "other").mkdir()
    (saved.parent.parent / "other" / saved.name).write_text(json.dumps(content))
    saved.unlink()
    result = gate.run(both(), *_BY_MACHINE, *COMPARE)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["differs: tensorflow: '1.0.0' in the baseline, * now", "UNKNOWN: not comparable*"])


def test_a_damaged_baseline_is_told_of(gate: GateSession) -> None:
    saved = gate.save(*_BY_MACHINE)
    saved.write_text("{", encoding="utf-8")
    result = gate.run(both(), *_BY_MACHINE, *COMPARE)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"UNKNOWN: {saved}: is not JSON*"])


def test_without_any_baseline_nothing_is_measured(gate: GateSession) -> None:
    result = gate.run(both(), *_BY_MACHINE, *COMPARE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*missing baseline: no saved run in *; record one with --benchmark-save=NAME"])


def test_a_calibration_of_the_machine_is_used_and_printed(gate: GateSession) -> None:
    saved = gate.save(*_BY_MACHINE)
    variation = {"sigma": 0.0005, "typical_sigma": 0.0005, "freedom": 11, "speedup": 1.9}
    calibration = {
        "made_at": "2026-01-02T03:04:05+00:00",
        "key": saved.parent.name,
        "runs": 12,
        "benchmarks": {"test_speed.py::test_one": variation, "test_speed.py::test_other": variation},
        "pooled_sigma": 0.0005,
        "pooled_typical_sigma": 0.0005,
        "pooled_freedom": 22,
        "threshold": 0.05,
        "confidence": 0.99,
        "comparisons": 132,
        "false_alarms": 0,
        "false_alarm_most": 0.0276,
        "smallest_loss": 0.011,
        "schema_version": 1,
    }
    file = saved.parent / "calibration.json"
    file.write_text(json.dumps(calibration), encoding="utf-8")
    small = both(one=1.84, second=1.84)
    result = gate.run(small, *_BY_MACHINE, *COMPARE)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["on this machine: 0 false alarms in 132 *; calibrated 2026-01-02 from 12 runs"])
    result.stdout.fnmatch_lines(["*test_one", "* worse, possibly within the threshold"])
    file.write_text("{", encoding="utf-8")
    broken = gate.run(small, *_BY_MACHINE, *COMPARE)
    assert broken.ret == pytest.ExitCode.TESTS_FAILED
    broken.stdout.fnmatch_lines([f"UNKNOWN: {file}: is not JSON*"])


def test_it_needs_pytest_benchmark(gate: GateSession) -> None:
    result = gate.run(both(), "--harness-speedup-by-machine", quick=False)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--harness-speedup-by-machine needs pytest-benchmark: remove -p no:benchmark*"])
