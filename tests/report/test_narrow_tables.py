"""Tables in 80 columns: no digit is lost, whatever the width of the figures."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from harness.report.profile import print_profile
from harness.report.speedups import WIDTH, beside_names
from harness.report.terminal import make_table
from harness.speed.timeline.record import DeviceTimes, HostTimes, Profile


def printed(table: object, width: int = WIDTH) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_table_that_fits_is_one_and_a_wide_one_continues_below() -> None:
    head = ("device", *[f"column {number}" for number in range(8)])
    rows = [(f"CPU:{row}", *[f"{row}{number}1234.56" for number in range(8)]) for row in range(2)]
    table = make_table(head, rows, right=head[1:], title="ms")
    (whole,) = [line for line in printed(table, 120) if "column 0" in line]
    assert whole.split() == " ".join(head).split()
    lines = printed(table)
    assert max(map(len, lines)) <= WIDTH
    assert [line.strip() for line in lines].count("ms") == 1
    heads = [line for line in lines if "device" in line]
    assert len(heads) == 2
    assert " ".join(heads).replace("device", "").split() == " ".join(head[1:]).split()
    for row in rows:
        shown = [line for line in lines if row[0] in line]
        assert [cell for line in shown for cell in line.split() if cell != row[0]] == list(row[1:])


def test_long_texts_take_several_lines_before_a_table_is_divided() -> None:
    table = make_table(("check", "reason"), [("a", "word " * 40)], long=("reason",))
    lines = printed(table)
    assert max(map(len, lines)) <= WIDTH
    assert sum("check" in line for line in lines) == 1
    assert " ".join(lines).count("word") == 40


def test_cells_of_several_lines_are_as_wide_as_the_widest_line() -> None:
    cells = ("way", "GPU:0 3.75 KiB\nGPU:1 3.50 KiB\nGPU:2 3.50 KiB", *["1234.56"] * 4)
    assert sum("way" in line for line in printed(make_table(cells[:1] + tuple("abcde"), [cells]))) == 2


@pytest.mark.parametrize("scale", [1, 10_000])
def test_a_profile_in_80_columns_has_every_digit(scale: int) -> None:
    spent = {f"{name}_ns": scale * 123_456_789 for name in ("compute", "transfer", "collective", "input")}
    times = tuple(
        DeviceTimes(
            f"/job:localhost/replica:0/task:0/device:CPU:{number}",
            listed=True,
            **spent,
            busy_ns=1,
            host_ns=scale * 40_950_001,
            waiting_ns=scale * 31_040_001,
            idle_share=0.25,
            ops=18_000,
            eager_ops=0,
            forward_ops=7_001,
            gradient_ops=6_002,
        )
        for number in range(2)
    )
    host = HostTimes(0, 0, 0, 0, calls_traced=0, traced=(), reads=0)
    names = tuple(each.device for each in times)
    profile = Profile("p.py:step", "cpu:2", names, 3, scale * 300_000_000, times, host, 0.5, 0.9, 0, 0)
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None)
    print_profile(console, profile)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    table = text.partition("p.py:step")[0]
    assert max(map(len, table.splitlines())) <= WIDTH
    assert "…" not in table
    for figure in (f"{scale * 123.456789:.2f}", f"{scale * 40.950001:.2f}", "25.0%", "18000", "7001", "6002"):
        assert len(re.findall(rf"(?<![\d.]){re.escape(figure)}(?![\d.])", text)) >= 2


@pytest.mark.parametrize(
    ("name", "beside"), [("t.py::test_a", True), ("tests/benchmarks/t.py::test_" + "a" * 40, False)]
)
def test_figures_are_beside_short_names_and_below_long_ones(name: str, beside: bool) -> None:
    head, ((first, *below),) = beside_names([name], "speedup", ["  1.900"], 60)
    assert first.startswith(name)
    assert (["  1.900" in first, *below] == [True]) is beside
    (last,) = below or [first]
    assert last.index("1.900") + 5 == head.index("speedup") + 7
    assert len(last) <= WIDTH
