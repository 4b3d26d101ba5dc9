"""What notebooks show: a verdict in its colour, tables, and nothing of a user's text as markup."""

from __future__ import annotations

import re

from harness.devices.device import Device, Devices
from harness.evidence.trace import Trace
from harness.notebook import bars, block, listed, table
from harness.records import Card, CheckResult, Exercised, Finding, RunRecord, Verdict
from harness.speed.memory.memory import Memory
from harness.speed.memory.record import Alive, Course
from harness.speed.record import Interval, SpeedupRecord


def test_a_verdict_has_its_colour_and_texts_are_no_markup() -> None:
    shown = block("FAIL", ["<b>wrong</b>", "next"], listed(["a < b"]))
    assert shown.startswith('<div><b style="color:#cf222e">FAIL</b> &lt;b&gt;wrong&lt;/b&gt;<br>next<ul>')
    assert "<li>a &lt; b</li>" in shown
    assert 'color:#9a6700">UNKNOWN' in block("UNKNOWN", [])
    assert listed([]) == ""
    assert "<th>a&amp;b</th>" in table(["a&b"], [["1,200"]])


def test_bars_are_as_long_as_their_counts() -> None:
    shown = bars({"CPU:0": {"forward": 6, "gradient": 18}, "CPU:<1>": {"forward": 6}})
    assert "CPU:&lt;1&gt;" in shown
    assert [shown.count(f"width:{size}px") for size in (60, 180)] == [2, 1]
    assert bars({}) == ""


def test_traces_and_speedups_are_shown_and_have_a_short_repr() -> None:
    assert "<div><b" in Trace((), ())._repr_html_()
    interval = Interval(1.6, 1.5, 1.7, 0.95)
    times = (2_000_000, 4_000_000, 3_000_000)
    record = SpeedupRecord(
        ("CPU:0", "CPU:1"), "core", "2 CPU cores", True, interval, 0.8, times, times, "pairs", 0.01, 1.0, 1.0,
        warnings=("only 3 pairs",),
    )  # fmt: skip
    assert repr(record) == "<SpeedupRecord 1.60 (1.50 to 1.70) on 2 CPU cores>"
    shown = record._repr_html_()
    for text in ("1.60 (1.50 to 1.70) on 2 CPU cores", "<td", ">3<", "only 3 pairs"):
        assert text in shown


def test_numbers_stand_on_the_right_and_sentences_that_begin_with_one_on_the_left() -> None:
    shown = table(["size", "what"], [["1,200", "2 devices computed"], ["-3.5%", "2 MiB"]])
    assert re.findall(r"align:(\w+)", shown) == ["right", "left", "right", "right"]


def test_a_run_is_shown_with_its_findings_and_checks() -> None:
    found = Finding("value", "loss", None, "1.0", "2.0", "the loss is <twice> as large")
    result = CheckResult("matpow", Verdict.FAIL, "wrong", "look", Exercised(), (found,))
    card = Card("CPU:0", "a processor")
    run = RunRecord("now", "0.2.0", (), "cpu:2", Verdict.FAIL, 1, False, (result,), elapsed_s=2.0, cards=(card,))
    assert repr(run) == "<RunRecord FAIL 1 check on cpu:2 in 2 s; the run did not end>"
    shown = run._repr_html_()
    for text in ("color:#cf222e", "matpow: [H104 value] the loss is &lt;twice&gt; as large", "CPU:0 a processor"):
        assert text in shown


def test_the_memory_of_a_device_is_shown_with_its_parts() -> None:
    alive = tuple(Alive("activations", "dense", f"model.py:{line}", 2**20) for line in range(10))
    course = Course("/device:GPU:1", "TensorFlow's allocator", 1, 10 * 2**20, 0, alive, (0,), ((0,) * 7,), 5)
    assert repr(course).startswith("<Course of the memory of GPU:1: peak 10 MiB (activations 100%)")
    shown = course._repr_html_()
    assert ">model.py:0<" in shown
    assert "and 2 smaller parts" in shown
    assert repr(Memory(Devices([Device("/device:CPU:0", "logical-cpu", "CPU:0")], spec="cpu:1"))) == "<Memory of CPU:0>"
