"""The fits give back the serial fraction that the times were made with."""

from __future__ import annotations

import numpy as np
import pytest

from harness.speed.scaling.curve import fit_serial_fraction, speedup_by, why_no_fit
from harness.speed.scaling.record import Mode

COUNTS = [1, 2, 4, 8] * 3


def times(mode: Mode, serial: float, counts: list[int], noise: float = 0.0) -> list[float]:
    ratios = np.asarray(counts, float) / min(counts)
    exact = serial + (1 - serial) / ratios if mode == "strong" else ratios / (ratios - serial * (ratios - 1))
    scatter = np.random.default_rng(7).normal(0.0, noise, len(counts))
    return [float(each) for each in 5e6 * exact * np.exp(scatter)]


@pytest.mark.parametrize("serial", [0.0, 0.1, 0.5, 1.0, -0.05])
@pytest.mark.parametrize("mode", ["strong", "weak"])
def test_exact_times_give_back_the_serial_fraction(mode: Mode, serial: float) -> None:
    fit = fit_serial_fraction(mode, COUNTS, times(mode, serial, COUNTS))
    assert fit.value == pytest.approx(serial, abs=1e-6)
    assert fit.time_ns == pytest.approx(5e6, rel=1e-6)
    assert fit.law == ("Amdahl" if mode == "strong" else "Gustafson")
    assert (fit.rounds, fit.counts, fit.base_devices) == (12, 4, 1)


@pytest.mark.parametrize("mode", ["strong", "weak"])
def test_the_interval_of_noisy_times_holds_the_serial_fraction(mode: Mode) -> None:
    fit = fit_serial_fraction(mode, COUNTS, times(mode, 0.2, COUNTS, noise=0.02))
    assert fit.interval is not None
    assert fit.interval.lower < 0.2 < fit.interval.upper
    assert fit.interval.upper - fit.interval.lower < 0.1
    noisier = fit_serial_fraction(mode, COUNTS, times(mode, 0.2, COUNTS, noise=0.08)).interval
    assert noisier is not None
    assert noisier.upper - noisier.lower > fit.interval.upper - fit.interval.lower


def test_about_95_of_100_intervals_hold_the_serial_fraction() -> None:
    """A worked example of what the confidence means, with fixed seeds."""
    held = 0
    for seed in range(100):
        scatter = np.random.default_rng(seed).normal(0.0, 0.03, len(COUNTS))
        made = [each * float(np.exp(noise)) for each, noise in zip(times("strong", 0.2, COUNTS), scatter, strict=True)]
        interval = fit_serial_fraction("strong", COUNTS, made).interval
        assert interval is not None
        held += interval.lower < 0.2 < interval.upper
    assert 90 <= held <= 99


def test_a_worked_example_by_hand() -> None:
    """Amdahl: of 10 s, 2 s are serial; on 4 devices 2 + 8/4 = 4 s. So s = 0.2, and the speedup is 2.5."""
    fit = fit_serial_fraction("strong", [1, 4], [10e9, 4e9])
    assert fit.value == pytest.approx(0.2)
    assert fit.interval is None, "as many times as parameters"
    assert speedup_by(fit, 4) == pytest.approx(2.5)


def test_a_worked_example_of_gustafson_by_hand() -> None:
    """Four times the work on 4 devices in 1.25 times the time is 3.2 times as much per second: s = 0.8 / 3."""
    fit = fit_serial_fraction("weak", [1, 4], [10e9, 12.5e9])
    assert fit.value == pytest.approx(0.8 / 3)
    assert speedup_by(fit, 4) == pytest.approx(3.2)


def test_the_smallest_set_need_not_be_one_device() -> None:
    fit = fit_serial_fraction("strong", [2, 8], [10e9, 4e9])
    assert fit.value == pytest.approx(0.2)
    assert fit.base_devices == 2


def test_devices_that_slow_each_other_down_have_a_fraction_above_one() -> None:
    assert fit_serial_fraction("strong", [1, 2], [1e9, 2e9]).value == pytest.approx(3.0)


@pytest.mark.parametrize(("counts", "said"), [([], "nothing was measured"), ([2, 2, 2], "all measurements are on 2")])
def test_one_number_of_devices_is_no_curve(counts: list[int], said: str) -> None:
    reason = why_no_fit(counts)
    assert reason is not None
    assert said in reason
    with pytest.raises(ValueError, match=said):
        fit_serial_fraction("strong", counts, [1e9] * len(counts))
    assert why_no_fit([1, 2]) is None
