"""``harness validate`` with the shipped checks on four logical CPUs, where all is right: every check passes.

Those of the level ``standard`` are run with the examples of ``quick``. That each of them can fail is shown in
``tests/checks`` and, of hardware, in ``tests/faults/test_described_machines.py``.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from command_line import run_process

from harness.checking.check import Level
from harness.checks.registry import SUITE
from harness.records import CheckResult, RunRecord, Verdict
from harness.report.storage import load_run

pytestmark = pytest.mark.long

#: Those that start several processes of their own are tried on fewer: ``cluster`` in ``tests/devices/test_cluster.py``,
#: ``isolation`` in ``tests/checks/hardware``.
ELSEWHERE = ("cluster", "isolation")
CHECKS = tuple(check.id for check in SUITE.select(level=Level.STANDARD) if check.id not in ELSEWHERE)
#: On how many devices a check runs that does not take all four.
DEVICES = {"matpow": 2, "tasks": 2, "memory-settings": 1}
OF_GRADIENTS = (
    "gradient-colocation",
    "generated-programs",
    "pipeline",
    "ensemble",
    "polynomial-fit",
    "digits-classifier",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shipped")


@pytest.fixture(scope="module")
def done(folder: Path) -> subprocess.CompletedProcess[str]:
    only = [word for check in CHECKS for word in ("--only", check)]
    return run_process(folder, "validate", "--devices", "cpu:4", "--timeout", "800", *only, planted=False, limit_s=1800)


@pytest.fixture(scope="module")
def record(done: subprocess.CompletedProcess[str], folder: Path) -> RunRecord:
    return load_run(folder / "harness-report")


@pytest.fixture(scope="module")
def results(record: RunRecord) -> dict[str, CheckResult]:
    return {result.check: result for result in record.results}


@pytest.mark.parametrize("check", CHECKS)
def test_each_check_passes_and_says_what_it_rests_on(results: dict[str, CheckResult], check: str) -> None:
    result = results[check]
    assert result.verdict is Verdict.PASS, (result.reason, result.findings)
    assert result.findings == ()
    assert result.exercised.values > 0
    assert result.exercised.ops > 0
    assert len(result.exercised.devices) == DEVICES.get(check, 4)


@pytest.mark.parametrize("check", OF_GRADIENTS)
def test_a_check_of_gradients_compares_them_and_proves_where_their_ops_ran(
    results: dict[str, CheckResult], check: str
) -> None:
    assert results[check].exercised.gradients > 0
    assert results[check].exercised.gradient_ops > 0


def test_figures_are_measured(results: dict[str, CheckResult]) -> None:
    assert results["matpow"].measured == {"products_of_a": 9, "products_of_b": 9}
    assert results["gradient-colocation"].measured["misplaced_gradient_ops_seen_in_control"] > 0
    assert results["polynomial-fit"].measured["distance_from_true_weights_sharded"] < 0.01
    assert results["digits-classifier"].measured["accuracy_sharded"] >= 0.9
    for check in ("polynomial-fit", "digits-classifier"):
        assert 0 <= results[check].measured["largest_share_of_bound_weights"] < 1


def test_the_command_succeeds_and_prints_a_line_for_each_check(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout
    assert done.stderr == ""
    assert f"PASS on cpu:4: {len(CHECKS)} checks" in done.stdout
    for check in CHECKS:
        assert f" {check} " in done.stdout


def test_the_record_says_what_it_was_obtained_on(record: RunRecord) -> None:
    assert (record.complete, record.verdict, record.exit_code) == (True, Verdict.PASS, 0)
    assert record.fingerprint is not None
    assert record.fingerprint.spec == "cpu:4"
    assert len(record.fingerprint.devices) == 4
    assert record.fingerprint.soft_placement is False


def test_the_chatter_of_tensorflow_is_in_the_log_and_not_on_the_terminal(
    done: subprocess.CompletedProcess[str], record: RunRecord
) -> None:
    assert "oneDNN" not in done.stdout
    assert "cpu_feature_guard" not in done.stdout
    assert record.results[0].log == "harness-report/logs/worker-1.log"
