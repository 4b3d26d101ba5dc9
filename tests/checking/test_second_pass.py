"""A check of hardware that fails is run again: what is confirmed stays, what was a moment's is a warning."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import pytest

from harness.checking.check import Check, CheckContext, Level
from harness.checking.execute import execute
from harness.devices.device import Device, Devices
from harness.records import CheckResult, Exercised, Finding, Verdict

DEVICES = Devices([Device("/job:localhost/replica:0/task:0/device:CPU:0", "logical-cpu", "CPU:0")], spec="cpu:1")
SLOW = Finding("rate", "matmul", "GPU:3", "", "", "slow")
OTHER_SLOW = Finding("rate", "matmul", "GPU:1", "", "", "slow")
CORRUPT = Finding("corruption", "matmul", "GPU:3", "", "", "other bits")


def passes(
    *findings: Sequence[Finding] | Exception, hardware: bool = True, level: Level = Level.STANDARD
) -> tuple[CheckResult, int]:
    """The result of a check whose passes give these findings, and how many passes there were."""
    left = list(findings)

    def run(context: CheckContext) -> CheckResult:
        given = left.pop(0)
        if isinstance(given, Exception):
            raise given
        verdict = Verdict.FAIL if given else Verdict.PASS
        return CheckResult("", verdict, "said", "", Exercised(values=1), tuple(given))

    result = execute(Check("one", "one", "one", 1, 1, run, hardware=hardware), CheckContext(DEVICES, level=level))
    return result, len(findings) - len(left)


@pytest.mark.parametrize(
    ("given", "verdict", "said"),
    [
        (([SLOW], [SLOW]), Verdict.FAIL, "confirmed by a second pass"),
        (([SLOW], []), Verdict.WARN, "not confirmed"),
        (([SLOW], [OTHER_SLOW]), Verdict.FAIL, "the first pass failed differently"),
        (([CORRUPT], []), Verdict.FAIL, "intermittent"),
        (([CORRUPT, SLOW], [CORRUPT]), Verdict.FAIL, "confirmed"),
        ((ValueError("odd"), ValueError("odd")), Verdict.FAIL, "confirmed"),
        ((ValueError("odd"), []), Verdict.WARN, "not confirmed"),
    ],
)
def test_a_failure_of_hardware_is_confirmed_before_it_is_said(
    given: tuple[list[Finding] | Exception, ...], verdict: Verdict, said: str
) -> None:
    result, count = passes(*given)
    assert (result.verdict, count) == (verdict, 2)
    assert said in result.reason
    assert result.findings


def test_a_second_pass_has_the_memory_that_the_first_one_held() -> None:
    class Buffer:
        pass

    held: list[weakref.ref[Buffer]] = []
    alive = []

    def run(context: CheckContext) -> CheckResult:
        alive.append(sum(each() is not None for each in held))
        buffer = Buffer()
        held.append(weakref.ref(buffer))
        circle: list[object] = [buffer]
        circle.append(circle)
        raise ValueError("odd")

    check = Check("one", "one", "one", 1, 1, run, hardware=True)
    assert execute(check, CheckContext(DEVICES)).verdict is Verdict.FAIL
    assert alive == [0, 0]


def test_what_did_not_come_again_is_a_warning_beside_what_did() -> None:
    result, _ = passes([CORRUPT, SLOW], [CORRUPT])
    assert {finding.kind: finding.severity for finding in result.findings} == {
        "corruption": Verdict.FAIL,
        "rate": Verdict.WARN,
    }


def test_a_pass_is_not_run_again_and_neither_is_what_is_no_hardware() -> None:
    assert passes([], [])[1] == 1
    result, count = passes([SLOW], [], hardware=False)
    assert (result.verdict, count) == (Verdict.FAIL, 1)


def test_quick_reruns_what_may_be_of_a_moment_and_not_what_fails_in_any_case() -> None:
    result, count = passes([CORRUPT, CORRUPT], [], level=Level.QUICK)
    assert (result.verdict, count, result.reason) == (Verdict.FAIL, 1, "said")
    for given in ([SLOW], [CORRUPT, SLOW]):
        assert passes(given, given, level=Level.QUICK)[1] == 2
    assert passes(ValueError("odd"), [], level=Level.QUICK)[0].verdict is Verdict.WARN
