"""Each warning on times, with a case in which it is given and one in which it is not."""

from __future__ import annotations

import numpy as np
import pytest

from harness.devices.device import Device
from harness.speed.estimate import paired_speedup
from harness.speed.pairs import Samples
from harness.speed.record import Stopped
from harness.speed.suspicions import about_rates, about_times, about_traces, about_waiting

_CPUS = [Device(f"/job:localhost/replica:0/task:0/device:CPU:{index}", "logical-cpu", "") for index in range(2)]


def _samples(speedup: float, pairs: int = 40, scatter: float = 0.001, stopped: Stopped = "precise") -> Samples:
    random = np.random.default_rng(0)
    parallel = 10e6 * np.exp(random.normal(0.0, scatter, pairs))
    single = speedup * 10e6 * np.exp(random.normal(0.0, scatter, pairs))
    as_times = [tuple(int(time) for time in times) for times in (single, parallel)]
    return Samples(as_times[0], as_times[1], stopped, 1.0)


def _said(samples: Samples) -> list[str]:
    speedup = paired_speedup(samples.single_ns, samples.parallel_ns)
    return about_times(samples, speedup, 0.01, _CPUS)


@pytest.mark.parametrize("speedup", [1.9, 1.0, 1.2])
def test_a_measurement_without_a_fault_is_left_alone(speedup: float) -> None:
    assert _said(_samples(speedup)) == []


def test_an_interval_that_is_too_wide_says_how_many_pairs_it_would_take() -> None:
    [said] = _said(_samples(1.9, scatter=0.1, stopped="budget"))
    assert said.startswith("the interval is ± ")
    assert "instead of ± 1.0% after 40 pairs; about" in said


def test_few_pairs_are_told_of() -> None:
    said = _said(_samples(1.9, pairs=6, stopped="budget"))
    assert any(line.startswith("only 6 pairs: a call takes 19 ms") for line in said)


def test_slower_on_two_devices_is_told_of() -> None:
    assert _said(_samples(0.7)) == ["slower on 2 devices than on one: speedup 0.70"]


def test_more_than_there_are_devices_is_told_of() -> None:
    [said] = _said(_samples(2.5))
    assert said.startswith("a speedup of 2.50 exceeds the number of devices (2)")


def test_pairs_that_hang_together_are_told_of() -> None:
    single = tuple(int(20e6 * (1.0 + 0.02 * np.sin(index / 10.0))) for index in range(100))
    [said] = _said(Samples(single, (10_000_000,) * 100, "precise", 1.0))
    assert said.startswith("neighbouring pairs are correlated (0.9")


def test_tracing_within_the_times_is_told_of() -> None:
    assert about_traces(0, 80) == []
    [said] = about_traces(80, 80)
    assert said.startswith("functions were traced 80 times in 80 measured calls")


def test_waiting_that_is_a_large_part_of_a_call_is_told_of() -> None:
    assert about_waiting(0.9e6, _samples(1.9)) == []
    [said] = about_waiting(1.2e6, _samples(1.9))
    assert "of which it waits 1,200 µs for its outputs" in said


def test_rates_that_no_device_reaches_are_told_of() -> None:
    assert about_rates(5e10, 1e10, _CPUS[0], 1, "single") == []
    assert about_rates(None, None, _CPUS[0], 1, "single") == []
    [said] = about_rates(1e13, None, _CPUS[0], 2, "parallel")
    assert said.startswith("`parallel` does 1e+13 FLOP/s, more than 2 CPUs can")
    [said] = about_rates(None, 1e15, _CPUS[0], 1, "single")
    assert said.startswith("`single` does 1e+15 bytes/s, more than 1 CPU can")
