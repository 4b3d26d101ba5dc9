"""Memory that grows from step to step is found with the line that keeps it, and what only warms up is not accused."""

from __future__ import annotations

import pytest
import tensorflow as tf
from leaking_programs import HISTORY, PAIRS, Pair

from harness import Devices, Memory, UsageError
from harness.speed.memory.errors import InvalidSize, MemoryGrows
from harness.speed.memory.leaks import growth


@pytest.mark.rotated(4)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_a_leak_is_found_with_the_line_that_keeps_it_and_its_twin_is_steady(devices: Devices, pair: Pair) -> None:
    memory, device = Memory(devices), devices[-1].name
    twin = pair.twin(device)
    for number in memory.steady(8):
        with tf.device(device):
            twin(number)
    leak = pair.leak(device)
    with pytest.raises(MemoryGrows) as found:  # noqa: PT012
        for number in memory.steady(8):
            with tf.device(device):
                leak(number)
    HISTORY.clear()
    assert pair.line in str(found.value)
    assert found.value.leaks
    named = [each.device for each in found.value.leaks if each.what == "bytes"]
    if pair.name in ("closure", "global", "variable", "concat", "cache", "default"):
        assert named == [devices[-1].parsed.short]


def test_what_each_step_may_keep_is_no_leak(devices: Devices) -> None:
    step = PAIRS[0].leak(devices[0].name)
    for number in Memory(devices).steady(8, allowed="1 KiB"):
        step(number)


@pytest.mark.parametrize("steps", [7, 2.5, True, "20"])
def test_steps_that_are_too_few_or_no_number_are_refused(devices: Devices, steps: object) -> None:
    with pytest.raises(UsageError, match="accepted: an integer, 8 or more"):
        Memory(devices).steady(steps)  # type: ignore[arg-type]


def test_a_size_that_is_none_is_refused(devices: Devices) -> None:
    with pytest.raises(InvalidSize, match="size '16 GX' is not valid"):
        Memory(devices).steady(allowed="16 GX")


@pytest.mark.parametrize(
    ("series", "per_step"),
    [
        (range(0, 200, 10), 10.0),
        ([100] * 20, 0.0),
        ([*range(0, 100, 10), *[100] * 10], 0.0),
        ([0, 10, 20, 30, 40] * 4, 0.0),
        ([1000 - each for each in range(20)], 0.0),
        ([each // 3 * 6 for each in range(30)], 2.0),
        ([0, 0, 0, 0, 0, 7, 7, 7], 0.0),
    ],
)
def test_only_what_grows_in_each_third_grows(series: list[int], per_step: float) -> None:
    assert growth(list(series)) == pytest.approx(per_step, rel=0.2)
