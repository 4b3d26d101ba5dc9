"""The shipped checks on three devices, each with faults planted under it that it must find.

That they pass where all is right is shown in ``tests/cli/test_cli_shipped_checks.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.checking.run import Plan, run_checks
from harness.checking.suite import load_suite
from harness.checks.registry import SUITE
from harness.records import CheckResult, Verdict
from harness.runner.messages import Finished

pytestmark = [pytest.mark.usefixtures("forked_workers"), pytest.mark.long]

FAULTY = "faulty_checks:SUITE"

#: What is planted, the verdict that must follow, and the kinds of findings of which at least one must be there.
EXPECTED = {
    "devices-distinct-one-twice": (Verdict.FAIL, {"unused-device"}),
    "devices-distinct-one-absent": (Verdict.FAIL, {"error"}),
    "devices-distinct-soft-placement": (Verdict.WARN, {"op-placement"}),
    "devices-distinct-anywhere": (Verdict.FAIL, {"op-placement"}),
    "devices-distinct-wrong": (Verdict.FAIL, {"value"}),
    "vector-add-permuted": (Verdict.FAIL, {"value"}),
    "vector-add-all-on-one": (Verdict.FAIL, {"unused-device"}),
    "matpow-once-too-often": (Verdict.FAIL, {"value"}),
    "matpow-all-on-one": (Verdict.FAIL, {"op-placement"}),
    "gradient-colocation-never": (Verdict.FAIL, {"gradient-placement"}),
    "gradient-colocation-blind": (Verdict.UNKNOWN, set[str]()),
    "generated-programs-lost-row": (Verdict.FAIL, {"shape"}),
    "generated-programs-none": (Verdict.UNKNOWN, set[str]()),
    "generated-programs-blind": (Verdict.UNKNOWN, set[str]()),
    "pipeline-swapped": (Verdict.FAIL, {"transfer"}),
    "pipeline-uncolocated": (Verdict.FAIL, {"gradient-placement"}),
    "ensemble-rotated": (Verdict.FAIL, {"variable-placement"}),
    "ensemble-reversed": (Verdict.FAIL, set[str]()),
    "tasks-other": (Verdict.FAIL, {"error"}),
    "polynomial-fit-off": (Verdict.FAIL, {"value"}),
    "polynomial-fit-slow": (Verdict.FAIL, {"value"}),
    "digits-classifier-off": (Verdict.FAIL, {"value"}),
    "digits-classifier-lazy": (Verdict.FAIL, {"value"}),
    "mirrored-strategy-clipped": (Verdict.FAIL, {"value", "gradient"}),
    "cluster-too-few": (Verdict.FAIL, {"error"}),
    "strategies-unknown": (Verdict.FAIL, {"error"}),
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory, spec_of: Callable[[int], str]) -> dict[str, CheckResult]:
    logs = tmp_path_factory.mktemp("faulty")
    plan = Plan(spec_of(3), load_suite(FAULTY).ids, logs, FAULTY, timeout_s=300)
    return {event.result.check: event.result for event in run_checks(plan) if isinstance(event, Finished)}


@pytest.mark.parametrize("check", EXPECTED)
def test_a_planted_fault_is_found(faulty: dict[str, CheckResult], check: str) -> None:
    verdict, kinds = EXPECTED[check]
    result = faulty[check]
    found = {finding.kind for finding in result.findings}
    assert result.verdict is verdict, (result.reason, result.findings)
    assert found >= kinds, (result.reason, result.findings)
    assert result.next_step


def test_every_planted_fault_is_expected_and_every_check_has_one() -> None:
    planted = load_suite(FAULTY).ids
    assert set(planted) == set(EXPECTED)
    # What checks of hardware find is shown on described machines: tests/faults, tests/checks/hardware.
    for check in SUITE.checks:
        assert check.hardware or any(each.startswith(check.id) for each in planted)


def test_every_program_that_went_wrong_is_named(faulty: dict[str, CheckResult]) -> None:
    assert {finding.where for finding in faulty["tasks-other"].findings} == {"fails.py", "second.py"}


def test_the_program_of_a_failure_is_small_and_in_the_finding(faulty: dict[str, CheckResult]) -> None:
    found = faulty["generated-programs-lost-row"].findings[0].found
    assert "in the program\nProgram(" in found
    assert len(found) < 2000


def test_a_control_that_finds_nothing_is_reported(faulty: dict[str, CheckResult]) -> None:
    assert "but harness.verify reported none of them" in faulty["gradient-colocation-blind"].reason
    assert "0 programs were generated" in faulty["generated-programs-none"].reason
