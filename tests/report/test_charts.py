"""The charts as they stand in the page: texts are texts, ids are their own, colours follow the page."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest
from sample_records import HOSTILE

from harness.records import PlacedOp
from harness.report.html.charts.drawing import Chart
from harness.report.html.charts.heat_map import heat_map, readable_on, relative_luminance
from harness.report.html.charts.lines import lines_chart
from harness.report.html.charts.op_timeline import op_timeline
from harness.report.html.charts.shares import shares_chart

_PAIRS = {("host", "GPU:0"): 25.0, ("GPU:0", "host"): 6.2}


def _matrix(name: str = "matrix") -> Chart:
    return heat_map(name, "copies", "two pairs", ["host", "GPU:0"], _PAIRS, "GB/s")


def test_a_chart_says_its_name_and_its_message_and_its_texts_are_texts() -> None:
    svg = str(_matrix().svg)
    root = ET.fromstring(svg)
    assert [child.tag for child in root][:2] == ["title", "desc"]
    assert (root[0].text, root[1].text) == ("copies", "two pairs")
    assert root.attrib["role"] == "img"
    texts = {element.text for element in root.iter("text")}
    assert {"25", "6.2", "host", "GPU:0", "to (GB/s)"} <= texts


def test_a_chart_brings_no_style_no_metadata_no_font_and_no_reference_out() -> None:
    svg = str(lines_chart("l", "t", "d", {"GPU:0": ((0.0, 1.0), (1.0, None))}, "s", "C").svg)
    for nothing in ("<style", "metadata", "font-family", "http", "xmlns", "<image"):
        assert nothing not in svg


def test_ids_and_references_to_them_are_those_of_the_chart() -> None:
    svg = str(lines_chart("mine", "t", "d", {"GPU:0": ((0.0, 1.0), (1.0, 2.0))}, "s", "C").svg)
    ids = set(re.findall(r' id="([^"]+)"', svg))
    assert ids
    assert all(each.startswith("mine-") for each in ids)
    assert set(re.findall(r"url\(#([^)]+)\)", svg)) | set(re.findall(r'href="#([^"]+)"', svg)) <= ids


def test_colours_are_variables_of_the_style_sheet() -> None:
    svg = str(shares_chart("s", "t", "d", {"matmul": [("GPU:0", 0.9), ("GPU:1", 0.5)]}, ["GPU:0", "GPU:1"]).svg)
    assert "#0102" not in svg
    for variable in ("var(--ink)", "var(--muted)", "var(--line)", "var(--series-1)", "var(--series-2)"):
        assert variable in svg


@pytest.mark.parametrize("step", range(0, 256, 5))
def test_the_value_in_a_cell_can_be_read_on_every_colour_of_the_map(step: int) -> None:
    ground = mpl.colormaps["viridis"](step)
    text = tuple(int(readable_on(ground)[place : place + 2], 16) / 255 for place in (1, 3, 5))
    lighter, darker = sorted((relative_luminance(ground), relative_luminance(text)), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def test_any_name_can_be_drawn() -> None:
    ops = [PlacedOp(order, text, text, text, text) for order, text in enumerate(HOSTILE)]
    devices = sorted({op.device for op in ops})
    charts = (
        op_timeline("o", "t", "d", ops, devices),
        heat_map("h", "t", "d", list(HOSTILE), dict.fromkeys(itertools.pairwise(HOSTILE), 1.0), HOSTILE[0]),
        shares_chart("s", "t", "d", {text: [(text, 1.0)] for text in HOSTILE}, list(HOSTILE)),
        lines_chart("l", "t", "d", dict.fromkeys(HOSTILE, ((0.0, 1.0), (1.0, 2.0))), HOSTILE[1], HOSTILE[2]),
    )
    for chart in charts:
        shown = "".join(ET.fromstring(str(chart.svg)).itertext())
        assert "<script>" in shown
        assert "\\u202e" in shown


def test_a_sensor_that_said_nothing_at_times_has_gaps_and_a_pair_that_was_not_measured_a_blank() -> None:
    gap = lines_chart("g", "t", "d", {"GPU:0": ((0.0, 1.0, 2.0, 3.0), (1.0, 2.0, None, 4.0))}, "s", "C")
    (line,) = re.findall(r'<path d="([^"]*)"[^>]*stroke: var\(--series-1\)', str(gap.svg))
    assert line.count("M") == 2, "two pieces"
    assert str(_matrix().svg).count(">25<") == 1
