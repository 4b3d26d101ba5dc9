"""The pages of a profile and of an advice: valid, with what was found first, and with nothing of a hostile name run."""

from __future__ import annotations

from dataclasses import replace

from html_rules import Page

from harness.advice.choice import with_choice
from harness.advice.record import BASELINE, Advice, Way
from harness.report.html.advice_page import advice_page
from harness.report.html.profile_page import profile_page
from harness.speed.record import Interval
from harness.speed.timeline.record import Cause, DeviceTimes, HostTimes, Profile

HOSTILE = "<script>alert(1)</script>.py:step"
CPU = "/job:localhost/replica:0/task:0/device:CPU:{}"


def times(number: int, compute_ns: int, ops: int = 7) -> DeviceTimes:
    return DeviceTimes(CPU.format(number), True, compute_ns, 0, 0, 0, compute_ns, 0, 900 - compute_ns, 0.5, ops, 0)


def profile(*devices: DeviceTimes) -> Profile:
    host = HostTimes(0, 0, 0, 0, calls_traced=0, traced=(), reads=0)
    names = tuple(each.device for each in devices)
    return Profile(
        HOSTILE, "cpu:2", names, 3, 900, devices, host, 0.2, 0.4, 0, 0, causes=(Cause("x", "A <b>cause</b>."),)
    )


def test_the_page_of_a_profile_has_its_causes_its_times_and_a_picture_in_words() -> None:
    text = profile_page(profile(times(0, 600), times(1, 300)))
    page = Page(text)
    assert page.problems == []
    assert "<script>" not in text
    for said in ("A <b>cause</b>.", "CPU:0: compute 66.7%, waiting 33.3%; CPU:1: compute 33.3%, waiting 66.7%"):
        assert said in page.text
    assert "No device's memory is known." in page.text


def test_a_profile_of_unknown_times_says_so() -> None:
    page = Page(profile_page(profile(times(0, 0, ops=0))))
    assert page.problems == []
    assert "How long each device worked is unknown." in page.text


def test_the_page_of_an_advice_has_the_recommendation_the_speedups_and_the_scripts() -> None:
    way = Way(
        "make_parallel", ("CPU:0", "CPU:1"), "proved", "proved <for> all", 1e6, 2e6, Interval(2.0, 1.8, 2.2, 0.95)
    )
    wrong = replace(way, name="pipeline", judgement="wrong", speedup=None, time_ns=None, code="never")
    ways = (Way(BASELINE, ("CPU:0",), "baseline", time_ns=2e6, code="one"), replace(way, code="use <it>"), wrong)
    advice = with_choice(Advice(HOSTILE, "cpu:2", "2 CPUs", True, "cpu", "a training step", 64, ways))
    text = advice_page(advice)
    page = Page(text)
    assert page.problems == []
    assert "<script>" not in text
    for said in (advice.recommendation, "make_parallel: 2.00 (1.80 to 2.20)", "64 rows", "use <it>", "WRONG, left out"):
        assert said in page.text
    assert "never" not in page.text
    assert "INTERRUPTED" not in page.text
    assert "INTERRUPTED" in Page(advice_page(replace(advice, complete=False))).text
    assert "redicted" not in page.text
    predicted = Page(advice_page(replace(advice, cards="2 H100 SXM"))).text
    assert all(each in predicted for each in ("Predicted speedup of each way", "predicted step", "predicted speedup"))
