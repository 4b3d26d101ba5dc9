"""``--harness-speedup-fail``: what it finds, what it passes, and what it refuses as gating nothing (S07)."""

from __future__ import annotations

import json

import pytest
from gate_session import COMPARE, QUICK, GateSession, both
from synthetic_runs import record, write

pytest_plugins = ["gate_fixture"]


def _told(result: pytest.RunResult) -> str:
    return result.stdout.str() + result.stderr.str()


def test_the_same_code_passes(gate: GateSession) -> None:
    gate.save()
    result = gate.run(both(), *COMPARE)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "*= speedups against the baseline =*",
            "against *0001_base.json",
            "accepted loss: 5.0%; confidence: 99.0%, one-sided",
            "variation between runs: ± 1.3% (default, not calibrated on this machine)",
            "*test_one",
            "* same",
            "*test_other",
            "* same",
            "PASS: no loss of speedup beyond 5.0% was shown in 2 benchmarks",
        ]
    )
    assert "measured a second time" not in result.stdout.str()


def test_a_planted_loss_is_measured_twice_and_fails(gate: GateSession) -> None:
    gate.save()
    result = gate.run(both(one=1.6, second=1.6), *COMPARE)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.stdout.str().count("measured a second time") == 1
    result.stdout.fnmatch_lines(
        [
            "*test_one",
            "*FAIL: worse by more than the threshold, confirmed by a second*",
            "*test_other",
            "* same",
        ]
    )
    result.stdout.fnmatch_lines(["FAIL: a loss of speedup beyond 5.0% in 1 of 2 benchmarks: *::test_one"])


def test_a_loss_that_the_second_measurement_does_not_show_passes(gate: GateSession) -> None:
    gate.save()
    result = gate.run(both(one=1.6, second=1.9), *COMPARE)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*test_one", "* worse, contradicted by the second measurement*"])


def test_a_baseline_is_named_by_its_number_or_its_path(gate: GateSession) -> None:
    saved = gate.save()
    gate.save(one=1.2)  # the last one, against which all is well
    lost = both(one=1.6, second=1.6)
    assert gate.run(lost, *COMPARE).ret == 0
    for named in ("0001", str(saved)):
        assert gate.run(lost, f"--benchmark-compare={named}", "--harness-speedup-fail=5%").ret == 1


def test_the_threshold_is_what_is_asked_for(gate: GateSession) -> None:
    gate.save()
    assert gate.run(both(one=1.6, second=1.6), "--benchmark-compare", "--harness-speedup-fail=0.3").ret == 0


def test_what_is_missing_now_is_no_pass(gate: GateSession) -> None:
    gate.save()
    result = gate.run(both(), *COMPARE, "-k", "test_one")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["missing: *::test_other is in the baseline*", "UNKNOWN: the baseline has 1 benchmark that*"]
    )


def test_a_session_that_measures_no_speedup_is_no_pass(gate: GateSession) -> None:
    gate.save()
    (gate.path / "test_speed.py").write_text("def test_plain(): pass\n", encoding="utf-8")
    (gate.path / "conftest.py").unlink()
    result = gate.run(both(), *COMPARE)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["UNKNOWN: no speedup was measured in this session"])


def test_another_machine_is_refused_with_the_fields_that_differ(gate: GateSession) -> None:
    saved = gate.save()
    content = json.loads(saved.read_text())
    content["machine_info"]["harness"]["cores_logical"] = 1234
    saved.write_text(json.dumps(content))
    result = gate.run(both(), *COMPARE)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["differs: cores_logical: 1234 in the baseline, * now", "UNKNOWN: not comparable*"])


def test_it_needs_a_baseline_to_be_asked_for(gate: GateSession) -> None:
    result = gate.run(both(), "--harness-speedup-fail=5%")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*--harness-speedup-fail=5% has no baseline to compare with; add --benchmark-compare*"]
    )


@pytest.mark.parametrize("share", ["0%", "100%", "-5%", "5 percent", "nan", ""])
def test_what_is_no_share_is_refused(gate: GateSession, share: str) -> None:
    result = gate.run(both(), "--benchmark-compare", f"--harness-speedup-fail={share}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--harness-speedup-fail: *; accepted: a percentage above 0% and below 100%*"])


@pytest.mark.parametrize(
    ("off", "why"),
    [
        (("-n", "2"), "xdist disables pytest-benchmark, so there is nothing to judge; run in one process"),
        (("--benchmark-disable",), "nothing to judge; remove --benchmark-disable, or add --benchmark-enable"),
        (("--benchmark-skip",), "nothing to judge; remove --benchmark-skip"),
    ],
)
def test_s07_pytest_benchmark_disabled_is_refused(gate: GateSession, off: tuple[str, ...], why: str) -> None:
    gate.save()
    result = gate.run(both(), *COMPARE, *off)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--harness-speedup-fail: " in _told(result)
    assert why in _told(result)


def test_s07_pytest_benchmark_left_out_is_refused(gate: GateSession) -> None:
    without = ("--harness-devices=cpu:2", "-p", "no:benchmark")
    result = gate.run(both(), *without, "--harness-speedup-fail=5%", quick=False)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--harness-speedup-fail needs pytest-benchmark: remove -p no:benchmark" in _told(result)
    result = gate.run(both(), *without, *COMPARE, quick=False)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "unrecognized arguments: --benchmark-compare" in _told(result)


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "is not JSON"), ("{", "is not JSON"), ('{"benchmarks": [], "machine_info": {}}', "has no speedup")],
)
def test_s07_a_baseline_that_holds_nothing_is_refused(gate: GateSession, text: str, why: str) -> None:
    saved = gate.save()
    saved.write_text(text, encoding="utf-8")
    result = gate.run(both(), *COMPARE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--harness-speedup-fail: {saved}: {why}" in _told(result)


@pytest.mark.parametrize("named", [(), ("=0007",), ("=gone.json",), ("=some/where/gone.json",)])
def test_s07_a_missing_baseline_is_refused(gate: GateSession, named: tuple[str, ...]) -> None:
    if named:
        gate.save()
    result = gate.run(both(), f"--benchmark-compare{''.join(named)}", "--harness-speedup-fail=5%")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "missing baseline: no saved run" in _told(result) or "no such file" in _told(result)


def test_a_name_that_stands_for_several_baselines_is_refused(gate: GateSession) -> None:
    gate.save()
    gate.save()
    result = gate.run(both(), "--benchmark-compare=0", "--harness-speedup-fail=5%")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--benchmark-compare=0 matches 2 baselines" in _told(result)


def test_without_the_option_nothing_is_judged(gate: GateSession) -> None:
    gate.save()
    result = gate.run(both(one=1.0), "--benchmark-compare")
    assert result.ret == 0
    assert "against the baseline" not in _told(result)


def test_listing_tests_claims_nothing(gate: GateSession) -> None:
    gate.save()
    result = gate.run(both(), *COMPARE, "--collect-only")
    assert result.ret == 0
    assert "PASS" not in _told(result)


def test_a_worse_program_also_fails_when_its_test_fails(gate: GateSession) -> None:
    gate.save()
    tests = (gate.path / "test_speed.py").read_text() + "\n    assert False\n"
    (gate.path / "test_speed.py").write_text(tests)
    result = gate.run(both(other=1.1), *COMPARE)
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_baseline_of_another_kind_of_devices_does_not_gate(gate: GateSession) -> None:
    saved = gate.save()
    content = json.loads(saved.read_text())
    for each in content["benchmarks"]:
        each["extra_info"]["harness"].update(gates=False, label="shares one card: not a speedup")
    saved.write_text(json.dumps(content))
    result = gate.run(both(), *COMPARE)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*test_one: not judged: shares one card: not a speedup", "UNKNOWN: nothing was*"])


def test_the_synthetic_baseline_is_one_that_pytest_benchmark_reads(gate: GateSession) -> None:
    write(gate.path / "made.json", {"test_speed.py::test_one": record()})
    result = gate.run(both(), "--benchmark-compare=made.json", "--harness-speedup-fail=5%", *QUICK[3:])
    assert "UNKNOWN: not comparable" in result.stdout.str()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
