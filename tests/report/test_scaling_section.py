"""The curve of ``harness scale`` in the report of a run: shown where it lies beside the run, with what it is of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import sample_records as samples
from html_rules import Page

from harness.report.html.page import report_page
from harness.report.publish import publish
from harness.report.scale import SCALE_FILE
from harness.report.storage import save_json
from harness.speed.record import Interval
from harness.speed.scaling.record import Point, ScaleRecord

CURVE = ScaleRecord(
    target="program.py:<build>",
    mode="strong",
    rounds=5,
    points=(
        Point("cpu:1", 1, "CPU", "logical", True, (), 8e6, None, 1.0, None, 1.0),
        Point("cpu:2", 2, "CPU", "logical", True, (), 4.4e6, None, 1.82, Interval(1.82, 1.7, 1.9, 0.95), 0.91),
        Point("cpu:4", 4, "CPU", None, None, (), error="it ended"),
    ),
    fit=None,
    why_no_fit="two points",
    complete=True,
    confidence=0.95,
    fingerprint=samples.clean().fingerprint,
)


def test_a_curve_is_drawn_with_its_table_and_what_it_is_of() -> None:
    page = Page(report_page(samples.clean(), CURVE))
    assert page.problems == []
    for said in (
        "strong scaling of program.py:<build>: the same work on more devices. no fit: two points.",
        "1 device: 1 times as fast; 2 devices: 1.82 times as fast.",
        "1.82 (1.7 to 1.9)",
        "91%",
        "cpu:4: it ended",
        "may have been measured at a different time",
    ):
        assert said in page.text
    assert "on hardware or software that differs from the run's" not in page.text
    assert "no speedup" not in page.text


def test_an_interval_that_tells_no_gain_from_a_loss_gives_no_figure() -> None:
    one, two, four = CURVE.points
    vague = replace(CURVE, points=(one, replace(two, speedup_interval=Interval(1.82, 0.6, 3.1, 0.95)), four))
    text = Page(report_page(samples.clean(), vague)).text
    assert "2 devices: cannot tell." in text
    assert "cpu:2: cannot tell a gain from a loss: use more --rounds" in text
    assert "91%" not in text
    assert "cannot tell" not in Page(report_page(samples.clean(), CURVE)).text


def test_what_has_to_be_known_before_it_is_believed_is_told() -> None:
    other = replace(CURVE, fingerprint=samples.fingerprint(cpu_model="another"), complete=False)
    text = Page(report_page(samples.clean(), other)).text
    assert "measured on hardware or software that differs from the run's" in text
    assert "The curve is incomplete" in text
    assert "the curve is of real hardware" in Page(report_page(samples.eight_cards(), CURVE)).text


def test_the_curve_beside_the_run_is_found_and_one_that_is_damaged_costs_nothing_but_itself(tmp_path: Path) -> None:
    assert "no speedup" in publish(samples.clean(), tmp_path).read_text(encoding="utf-8")
    save_json(CURVE, tmp_path, SCALE_FILE)
    assert "1.82 (1.7 to 1.9)" in publish(samples.clean(), tmp_path).read_text(encoding="utf-8")
    elsewhere = publish(samples.clean(), tmp_path / "elsewhere", beside=tmp_path)
    assert "1.82 (1.7 to 1.9)" in elsewhere.read_text(encoding="utf-8")
    (tmp_path / SCALE_FILE).write_text("{", encoding="utf-8")
    text = Page(publish(samples.clean(), tmp_path).read_text(encoding="utf-8")).text
    assert "The scaling curve cannot be read:" in text
    assert "is not JSON" in text
