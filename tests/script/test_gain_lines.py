"""What `harness check` says of the speed of a step."""

from __future__ import annotations

import re

import pytest

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
