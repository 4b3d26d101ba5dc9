"""From rounds to times, speedups, efficiencies and the law; and how calls are timed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t

from harness.speed.scaling.curve import curve_of, geometric_mean
from harness.speed.scaling.picture import draw_curve, law_text
from harness.speed.scaling.record import Mode, Point, Round, ScaleRecord


def point(spec: str, devices: int, *medians_ns: int, kind: str = "core") -> Point:
    rounds = tuple(Round(number, (each - 1, each, each + 50)) for number, each in enumerate(medians_ns))
    return Point(spec, devices, kind, f"{devices} cores", True, rounds)


def curve(*points: Point, mode: Mode = "strong") -> ScaleRecord:
    return curve_of(points, target="p.py:f", mode=mode, rounds=3, complete=True)


def test_speedup_is_taken_round_by_round_so_that_drift_cancels() -> None:
    drifting = curve(point("cores:1", 1, 1000, 2000, 4000), point("cores:2", 2, 500, 1000, 2000))
    one, two = drifting.points
    assert (one.speedup, one.efficiency) == (1.0, 1.0)
    assert two.speedup == pytest.approx(2.0)
    assert two.efficiency == pytest.approx(1.0)
    assert two.speedup_interval is not None
    assert two.speedup_interval.upper == pytest.approx(2.0)
    assert two.time_interval_ns is not None
    assert two.time_interval_ns.upper > 2000, "the time itself is anything but certain"


def test_weak_scaling_counts_the_work_that_came_along() -> None:
    _, two = curve(point("cores:1", 1, 1000, 1000), point("cores:2", 2, 1250, 1250), mode="weak").points
    assert two.speedup == pytest.approx(1.6)
    assert two.efficiency == pytest.approx(0.8)


def test_a_geometric_mean_and_its_interval_by_hand() -> None:
    mean, interval = geometric_mean([1.0, 2.0, 4.0])
    assert mean == pytest.approx(2.0)
    half = float(t.ppf(0.975, 2)) * np.log(2.0) / np.sqrt(3.0)
    assert interval is not None
    assert interval.lower == pytest.approx(2 * np.exp(-half))
    assert interval.upper == pytest.approx(2 * np.exp(half))


def test_a_single_round_has_no_interval() -> None:
    record = curve(point("cores:1", 1, 1000), point("cores:2", 2, 600))
    assert [each.time_interval_ns for each in record.points] == [None, None]
    assert record.fit is not None
    assert record.fit.interval is None


def test_a_single_count_is_no_fit_and_says_so() -> None:
    record = curve(point("cores:2", 2, 1000, 1001))
    assert record.fit is None
    assert law_text(record) == "no fit: all measurements are on 2 devices; a fit needs two different numbers of devices"


def test_devices_of_two_kinds_are_no_curve() -> None:
    record = curve(point("cores:1", 1, 1000), point("gpu:2", 2, 10, kind="gpu"))
    assert record.fit is None
    assert "several kinds (core, gpu)" in str(record.why_no_fit)


def test_a_device_set_that_failed_leaves_the_others_as_they_are() -> None:
    failed = Point("cores:9", None, None, None, None, (), error="9 cores are not here")
    record = curve(point("cores:1", 1, 1000, 1000), failed, point("cores:2", 2, 500, 500))
    assert record.points[1] == failed
    assert record.points[2].speedup == pytest.approx(2.0)
    assert record.fit is not None
    assert record.fit.value == pytest.approx(0.0, abs=1e-6)


def test_a_round_that_the_smallest_set_missed_is_in_no_speedup() -> None:
    _, two = curve(point("cores:1", 1, 1000), point("cores:2", 2, 500, 5)).points
    assert two.speedup == pytest.approx(2.0)


def test_the_picture_is_drawn_and_not_of_nothing(tmp_path: Path) -> None:
    from matplotlib.image import imread

    path = tmp_path / "scale.png"
    assert draw_curve(curve(point("cores:1", 1, 1000, 1010), point("cores:2", 2, 520, 530)), [path])
    colours = {tuple(pixel) for row in (imread(path)[:, :, :3] * 255).round().astype(int) for pixel in row.tolist()}
    assert {(0, 114, 178), (213, 94, 0)} <= colours, "the points and the law"
    assert not draw_curve(curve(Point("cores:1", None, None, None, None, (), error="no")), [tmp_path / "none.png"])
    assert not (tmp_path / "none.png").exists()


def test_an_interval_that_says_nothing_is_not_called_a_result() -> None:
    from harness.report.scale import summary

    wild = curve(point("cores:1", 1, 1000, 3000, 500), point("cores:2", 2, 2500, 400, 900))
    assert "Amdahl: cannot tell the serial fraction (" in law_text(wild)
    assert any(line.startswith("cores:2: cannot tell a gain from a loss") for line in summary(wild))
    steady = curve(point("cores:1", 1, 1000, 1001, 999), point("cores:2", 2, 600, 601, 599))
    assert law_text(steady).startswith("Amdahl: serial fraction 2")
    assert not any("cannot tell" in line for line in summary(steady))
    none = curve(point("cores:1", 1, 1000, 1001, 999), point("cores:2", 2, 1001, 1000, 999))
    assert not any("cannot tell" in line for line in summary(none)), "no gain, and it is certain"
