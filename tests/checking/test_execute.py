"""The rules that no check may get around, with checks that need no TensorFlow."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from harness.checking.check import Check, CheckContext, Driver
from harness.checking.execute import execute
from harness.devices.device import Device, Devices
from harness.errors import EvidenceError, TensorFlowInterfaceChanged
from harness.records import CheckResult, Exercised, Finding, Verdict

SOMETHING = Exercised(values=1)
Body = Callable[[CheckContext], CheckResult]
FAILING = Finding("value", "y", None, "1", "2", "off by one")
WARNING = Finding("op-placement", "Add", None, "CPU:1", "CPU:0", "ran elsewhere", Verdict.WARN)


def run(body: Body, *, needs: int = 1, there: int = 2) -> CheckResult:
    names = [f"/job:localhost/replica:0/task:0/device:CPU:{index}" for index in range(there)]
    devices = Devices([Device(name, "logical-cpu", "/physical_device:CPU:0") for name in names], spec=f"cpu:{there}")
    return execute(Check("a-check", "a check", "something", needs, 1, body), CheckContext(devices))


def says(verdict: Verdict, exercised: Exercised = SOMETHING, *findings: Finding) -> Body:
    measured: dict[str, float] = {"error_ulp": 2}
    return lambda context: CheckResult("", verdict, "as I say", "do this", exercised, findings, measured=measured)


def test_a_check_that_exercised_something_keeps_its_verdict() -> None:
    for verdict in Verdict:
        result = run(says(verdict))
        assert (result.verdict, result.reason, result.next_step) == (verdict, "as I say", "do this")
    assert result.check == "a-check"
    assert result.spec == "cpu:2"
    assert result.measured == {"error_ulp": 2.0}
    assert result.exercised == SOMETHING
    assert 0 <= result.elapsed_s < 60


@pytest.mark.parametrize("said", [Verdict.PASS, Verdict.WARN, Verdict.FAIL])
def test_a_check_that_exercised_nothing_is_unknown_whatever_it_says(said: Verdict) -> None:
    result = run(says(said, Exercised()))
    assert result.verdict is Verdict.UNKNOWN
    assert "nothing was exercised" in result.reason
    assert str(said) in result.reason


@pytest.mark.parametrize("verdict", list(Verdict))
def test_what_a_described_machine_says_is_told_from_what_was_executed(verdict: Verdict) -> None:
    devices = Devices([Device("/device:GPU:0", "software-gpu", "")], spec="softgpu:machine.toml")
    note = "described, not read from hardware: sensors (simulated) and card state (static)"
    for described in (True, False):
        for reads in ((), (Driver.SENSORS, Driver.STATE)):
            check = Check("a-check", "a check", "something", 1, 1, says(verdict), reads=reads)
            result = execute(check, CheckContext(devices, described=described))
            proven = described and reads and verdict not in (Verdict.SKIP, Verdict.UNKNOWN)
            assert result.scope == ((note,) if proven else ())
            assert result.reason == (f"as I say; {note}" if proven and verdict is Verdict.PASS else "as I say")


def test_programs_and_devices_alone_are_no_exercise() -> None:
    result = run(says(Verdict.PASS, Exercised(programs=5, devices=("CPU:0",))))
    assert result.verdict is Verdict.UNKNOWN


def test_a_finding_stands_though_nothing_else_was_exercised() -> None:
    result = run(says(Verdict.FAIL, Exercised(), FAILING))
    assert result.verdict is Verdict.FAIL
    assert result.findings == (FAILING,)


def test_a_warning_does_not_make_an_empty_check_count() -> None:
    assert run(says(Verdict.PASS, Exercised(), WARNING)).verdict is Verdict.UNKNOWN


def test_a_verdict_is_never_better_than_its_findings() -> None:
    assert run(says(Verdict.PASS, SOMETHING, FAILING)).verdict is Verdict.FAIL
    assert run(says(Verdict.WARN, SOMETHING, WARNING, FAILING)).verdict is Verdict.FAIL
    assert run(says(Verdict.SKIP, SOMETHING, FAILING)).verdict is Verdict.FAIL
    assert run(says(Verdict.PASS, SOMETHING, WARNING)).verdict is Verdict.WARN
    assert run(says(Verdict.PASS, SOMETHING)).verdict is Verdict.PASS


def test_a_check_is_skipped_where_there_are_too_few_devices_and_runs_where_there_are_enough() -> None:
    def never(context: CheckContext) -> CheckResult:
        raise AssertionError("must not run")

    result = run(never, needs=3, there=2)
    assert result.verdict is Verdict.SKIP
    assert result.reason == "needs 3 devices; configured: 2"
    assert "--devices" in result.next_step
    assert run(says(Verdict.PASS), needs=3, there=3).verdict is Verdict.PASS


def test_a_check_that_raises_fails_with_its_traceback() -> None:
    def raises(context: CheckContext) -> CheckResult:
        raise ValueError("broken\nin two lines")

    result = run(raises)
    assert result.verdict is Verdict.FAIL
    assert result.reason == "raised ValueError: broken"
    (finding,) = result.findings
    assert finding.kind == "error"
    assert "Traceback" in finding.found
    assert "in raises" in finding.found
    assert "--only a-check" in result.next_step


def test_a_check_cannot_leave_by_sys_exit() -> None:
    result = run(lambda context: sys.exit(0))
    assert result.verdict is Verdict.FAIL
    assert "SystemExit" in result.reason


def test_an_interrupt_passes_through() -> None:
    def interrupted(context: CheckContext) -> CheckResult:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(interrupted)


@pytest.mark.parametrize("error", [EvidenceError("no graphs"), TensorFlowInterfaceChanged("eager.context", "a", "b")])
def test_a_check_without_evidence_is_unknown(error: EvidenceError) -> None:
    def blind(context: CheckContext) -> CheckResult:
        raise error

    result = run(blind)
    assert result.verdict is Verdict.UNKNOWN
    assert str(error) in result.reason
    assert result.findings == ()


@pytest.mark.parametrize("bad", ["", "Matpow", "mat_pow", "-matpow", "matpow-", "mat--pow", "a b"])
def test_an_id_that_is_not_kebab_case_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="lower-case words"):
        Check(bad, "t", "p", 1, 1, says(Verdict.PASS))


def test_a_check_does_not_need_fewer_devices_than_none() -> None:
    with pytest.raises(ValueError, match="minimum_devices=-1"):
        Check("a-check", "t", "p", -1, 1, says(Verdict.PASS))


def test_without_any_device_a_check_that_needs_one_is_skipped_with_the_reason() -> None:
    none = CheckContext(Devices((), spec="gpu", reason="no GPU can be used"))
    skipped = execute(Check("a-check", "t", "p", 1, 1, says(Verdict.PASS)), none)
    assert (skipped.verdict, skipped.reason) == (Verdict.SKIP, "not run: no GPU can be used")
    ran = execute(Check("a-check", "t", "p", 0, 1, says(Verdict.PASS)), none)
    assert ran.verdict is not Verdict.SKIP
