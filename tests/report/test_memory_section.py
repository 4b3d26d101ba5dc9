"""Memory over time in the report of a run and in the terminal: what is alive at the peak, and how it was measured."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import sample_records as samples
from html_rules import Page
from rich.console import Console

from harness.devices.device import Device
from harness.report.html.page import report_page
from harness.report.memory import print_memory
from harness.report.profile import PROFILE_FILE
from harness.report.publish import publish
from harness.report.storage import save_json
from harness.speed.memory.picture import draw_memory
from harness.speed.memory.record import KINDS, Alive, Course
from harness.speed.timeline.record import HostTimes, Profile

MIB = 2**20
GPU = "/job:localhost/replica:0/task:0/device:GPU:{}"


def held(**sizes: int) -> tuple[int, ...]:
    return tuple(sizes.get(kind, 0) * MIB for kind in KINDS)


COURSE = Course(
    device=GPU.format(1),
    source="TensorFlow's allocator on the device",
    call=2,
    peak_bytes=10 * MIB,
    peak_at_ns=3_000_000,
    alive=(
        Alive("activations", "first", "model.py:<3>", 6 * MIB, 2),
        Alive("variables", "first", "model.py:1", 3 * MIB, 1),
        Alive("unknown", "", "", 1 * MIB, 1),
    ),
    at_ns=(0, 3_000_000, 7_000_000),
    held_bytes=(held(variables=3, unknown=1), held(variables=3, activations=6, unknown=1), held(variables=3)),
    call_ns=9_000_000,
    rounding_bytes=2 * MIB,
    limit_bytes=2048 * MIB,
)
PROFILE = Profile(
    target="program.py:step",
    spec="softgpu:2",
    devices=(GPU.format(0), GPU.format(1)),
    calls=3,
    wall_ns=27_000_000,
    times=(),
    host=HostTimes(alone_ns=0, input_ns=0, tracing_ns=0, convert_ns=0, calls_traced=0, traced=(), reads=0),
    overlap_share=None,
    possible_overlap_share=None,
    unattributed_ns=0,
    unattributed_ops=0,
    memory=(COURSE,),
)


def printed(*courses: Course) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    print_memory(console, courses)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


def test_the_terminal_gets_ten_lines_of_eighty_columns() -> None:
    lines = [line for line in printed(COURSE, *[replace(COURSE, peak_bytes=MIB)] * 3) if line.strip()]
    assert len(lines) == 10
    assert max(map(len, lines)) <= 80
    assert lines[:2] == [
        "memory of GPU:1: peak 10 MiB at 3 of 9 ms of call 2, 90% with a line",
        "  activations 60%, variables 30%, unknown 10%",
    ]
    assert "  TensorFlow's allocator on the device: rounding 2 MiB, limit 2 GiB" in lines
    assert "and 2 more devices, in the record" in lines


def test_without_an_allocators_figures_none_are_given() -> None:
    text = "\n".join(printed(replace(COURSE, limit_bytes=None, rounding_bytes=None)))
    assert "rounding" not in text
    assert "limit" not in text


def test_a_profile_beside_the_run_is_drawn_with_its_table() -> None:
    page = Page(report_page(samples.clean(), None, PROFILE))
    assert page.problems == []
    for said in ("Memory of GPU:1 in call 2", "model.py:<3>", "6 MiB", "60%", "peak 10 MiB", "program.py:step"):
        assert said in page.text
    assert "Memory over time" in page.text
    assert "Memory over time" not in Page(report_page(samples.clean(), None, replace(PROFILE, memory=()))).text


def test_the_profile_in_the_folder_is_found_and_one_that_is_damaged_costs_nothing_but_itself(tmp_path: Path) -> None:
    assert "Memory over time" not in publish(samples.clean(), tmp_path).read_text(encoding="utf-8")
    save_json(PROFILE, tmp_path, PROFILE_FILE)
    assert "Memory of GPU:1 in call 2" in publish(samples.clean(), tmp_path).read_text(encoding="utf-8")
    (tmp_path / PROFILE_FILE).write_text("{", encoding="utf-8")
    text = Page(publish(samples.clean(), tmp_path).read_text(encoding="utf-8")).text
    assert "The profile cannot be read:" in text


def test_the_picture_has_a_part_for_each_device(tmp_path: Path) -> None:
    other = replace(COURSE, device=Device(GPU.format(0), "gpu", "").name, peak_at_ns=7_000_000)
    draw_memory("program.py:step", (other, COURSE), [tmp_path / "memory.svg"])
    assert (tmp_path / "memory.svg").stat().st_size > 1000
    draw_memory("program.py:step", (), [tmp_path / "none.svg"])
    assert not (tmp_path / "none.svg").exists()
