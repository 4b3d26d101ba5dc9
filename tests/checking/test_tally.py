"""Adding up the parts of a check."""

from __future__ import annotations

from dataclasses import replace

from harness.checking.tally import MOST_OPS, MOST_PROGRAMS, Tally
from harness.devices.device import Device, Devices
from harness.devices.name import DeviceName
from harness.evidence.op import Op
from harness.evidence.trace import Trace
from harness.judgement.verification import Verification
from harness.records import Exercised, Finding, PlacedOp, Verdict

CPU0, CPU1 = (f"/job:localhost/replica:0/task:0/device:CPU:{index}" for index in range(2))
DEVICES = Devices([Device(name, "logical-cpu", "/physical_device:CPU:0") for name in (CPU0, CPU1)], spec="cpu:2")
FINDING = Finding("value", "output y", CPU1, "1", "2", "off by one")


def verification(verdict: Verdict, *findings: Finding, devices: tuple[str, ...] = (CPU0, CPU1)) -> Verification:
    exercised = Exercised(programs=1, values=10, ops=4, devices=devices)
    return Verification(verdict, f"the reason of {verdict}", findings, exercised)


def test_parts_that_pass_make_a_pass() -> None:
    tally = Tally()
    tally.add(verification(Verdict.PASS, devices=(CPU0,)), "first part")
    tally.add(verification(Verdict.PASS, devices=(CPU1,)), "second part")
    tally.require_devices(DEVICES)
    outcome = tally.result("all parts hold", "nothing")
    assert (outcome.verdict, outcome.reason, outcome.next_step) == (Verdict.PASS, "all parts hold", "")
    assert outcome.exercised == Exercised(programs=2, values=20, ops=8, devices=(CPU0, CPU1))


def test_a_finding_in_one_part_fails_the_check_and_says_which_part() -> None:
    tally = Tally()
    tally.add(verification(Verdict.PASS), "first part")
    tally.add(verification(Verdict.FAIL, FINDING), "second part")
    outcome = tally.result("all parts hold", "look there")
    assert outcome.verdict is Verdict.FAIL
    assert outcome.findings == (replace(FINDING, where="second part: output y"),)
    assert outcome.reason == "value: off by one"
    assert outcome.next_step == "look there"


def test_a_part_that_proves_nothing_makes_the_check_unknown() -> None:
    tally = Tally()
    tally.add(verification(Verdict.PASS), "first part")
    tally.add(verification(Verdict.UNKNOWN), "second part")
    outcome = tally.result("all parts hold", "look there")
    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.reason == "second part: the reason of UNKNOWN"


def test_a_finding_outweighs_a_part_that_proves_nothing() -> None:
    tally = Tally()
    tally.unproven("blind")
    tally.found(FINDING)
    assert tally.result("", "").verdict is Verdict.FAIL


def test_a_failure_says_what_was_expected_and_found_unless_there_is_more_to_say() -> None:
    tally = Tally()
    tally.fail("error", "first.py", "exit code 0", "no result", device=CPU1)
    tally.fail("value", "output y", "1", "2", "off by one")
    assert [finding.message for finding in tally.findings] == [
        "first.py: expected exit code 0, found no result",
        "off by one",
    ]
    assert [finding.device for finding in tally.findings] == [CPU1, None]


def test_a_warning_makes_a_warning() -> None:
    tally = Tally()
    tally.exercised += Exercised(values=1)
    tally.found(replace(FINDING, severity=Verdict.WARN))
    assert tally.result("", "").verdict is Verdict.WARN


def test_a_device_on_which_nothing_ran_is_found() -> None:
    tally = Tally()
    tally.add(verification(Verdict.PASS, devices=(CPU0,)))
    tally.require_devices(DEVICES)
    (finding,) = tally.findings
    assert (finding.kind, finding.device) == ("unused-device", CPU1)


def test_an_idle_device_is_not_told_beside_what_failed_first() -> None:
    tally = Tally()
    tally.found(FINDING)
    tally.require_devices(DEVICES)
    assert tally.findings == [FINDING]


def traced(count: int, device: str | None = CPU0) -> Trace:
    """A trace of ``count`` products on one device, or of ops that nothing is known of."""
    name = DeviceName.parse(device) if device else None
    return Trace(tuple(Op(f"MatMul_{index}", "MatMul", "MatMul", name, None, "forward") for index in range(count)), ())


def test_where_the_ops_ran_is_kept_with_the_part_and_the_mode() -> None:
    tally = Tally()
    tally.add(replace(verification(Verdict.PASS), traces={"eager": traced(2), "graph": traced(1, CPU1)}), "sum")
    first, second = tally.result("", "").placements
    assert (first.program, first.total, second.program) == ("sum (eager)", 2, "sum (graph)")
    assert first.ops[1] == PlacedOp(1, "MatMul_1", "MatMul", CPU0, "forward")
    assert second.ops[0].device == CPU1


def test_of_many_programs_and_ops_the_first_are_kept_and_the_total_is_told() -> None:
    tally = Tally()
    for number in range(MOST_PROGRAMS + 2):
        tally.add(replace(verification(Verdict.PASS), traces={"eager": traced(MOST_OPS + 50)}), f"program {number}")
    kept = tally.result("", "").placements
    assert [each.program for each in kept] == [f"program {number} (eager)" for number in range(MOST_PROGRAMS)]
    assert all((len(each.ops), each.total) == (MOST_OPS, MOST_OPS + 50) for each in kept)


def test_an_op_that_nothing_is_known_of_has_no_place() -> None:
    tally = Tally()
    tally.add(replace(verification(Verdict.PASS), traces={"eager": traced(3, None)}))
    assert tally.result("", "").placements == ()
