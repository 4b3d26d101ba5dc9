"""What notebooks show: a verdict in its colour, tables, and nothing of a user's text as markup."""

from __future__ import annotations

from harness.evidence.trace import Trace
from harness.notebook import bars, block, listed, table
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
