"""Which steps `harness check` times, and what it says of their speed."""

from __future__ import annotations

import re

import pytest

from harness import Devices, Verdict
from harness.judgement.verification import Verification
from harness.records import Exercised
from harness.script.capture import StepCall
from harness.script.check import Checked, Mend
from harness.script.gain import Gain, gain_lines
from harness.speed.record import Interval


@pytest.mark.parametrize(
    ("value", "busiest_s", "change", "lines"),
    [
        (1.6, None, False, ["1.60 times as fast as on one device (1.50 to 1.70), on 2 GPUs"]),
        (1.6, None, True, ["Speedup of the step: 1.60 (1.50 to 1.70), on 2 GPUs"]),
        (1.05, None, False, ["No faster than on one device: 1.05 times", "Little is gained by a step of this size"]),
        (0.8, None, False, ["Slower than on one device: 0.80 times", "Little is gained by a step of this size"]),
        (0.8, (0.4, 0.25), False, ["Slower than on one device", "Other programs use the cores too.* 1.60 times as"]),
    ],
)
def test_a_speedup_is_said_with_what_it_means(
    value: float, busiest_s: tuple[float, float] | None, change: bool, lines: list[str]
) -> None:
    found = gain_lines(Gain(Interval(value, value - 0.1, value + 0.1, 0.95), busiest_s), "2 GPUs", change=change)
    assert len(found) == len(lines)
    for text, start in zip(found, lines, strict=True):
        assert re.match(start.replace("(", r"\(").replace(")", r"\)"), text), text


@pytest.mark.parametrize(
    ("own", "mended", "timed", "compared"),
    [
        (Verdict.PASS, None, True, True),
        (Verdict.WARN, None, True, True),
        (Verdict.UNKNOWN, None, False, False),
        (Verdict.FAIL, None, False, False),
        (Verdict.FAIL, Verdict.PASS, True, True),
        (Verdict.FAIL, Verdict.UNKNOWN, True, False),
        (Verdict.FAIL, Verdict.FAIL, False, False),
    ],
)
def test_what_does_not_fail_is_timed_and_what_passes_was_compared(
    own: Verdict, mended: Verdict | None, timed: bool, compared: bool
) -> None:
    exercised = Exercised(values=3)
    mend = None if mended is None else Mend((), Verification(mended, "", (), exercised))
    checked = Checked(
        StepCall("step", 1, print, (), {}), Devices((), spec=""), Verification(own, "", (), exercised), mend
    )
    assert (checked.timed, checked.compared) == (timed, compared)
