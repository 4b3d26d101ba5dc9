"""The table of speedups at the end of a session."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

from harness.report.speedups import speedup_lines
from harness.speed.record import Interval, SpeedupRecord

_RECORD = SpeedupRecord(
    devices=("/job:localhost/replica:0/task:0/device:GPU:0", "/job:localhost/replica:0/task:0/device:GPU:1"),
    kind="gpu",
    label="2 GPUs",
    gates=True,
    speedup=Interval(1.9, 1.8812, 1.9189, 0.95),
    efficiency=0.95,
    single_ns=(19,) * 40,
    parallel_ns=(10,) * 40,
    stopped="precise",
    wanted_half_width=0.01,
    budget_s=5.0,
    elapsed_s=1.0,
)


def test_nothing_measured_is_no_table() -> None:
    assert speedup_lines([]) == []


def test_each_benchmark_has_its_figures_its_label_and_its_warnings() -> None:
    warned = replace(_RECORD, stopped="budget", warnings=("one thing.", "another."))
    head, *lines = speedup_lines([("t.py::test_a", asdict(_RECORD)), ("t.py::test_longer", asdict(warned))])
    assert head.split() == ["speedup", "interval", "efficiency", "pairs", "stopped"]
    assert [line.split() for line in lines] == [
        ["t.py::test_a", "1.900", "1.881", "to", "1.919", "95.0%", "40", "precise"],
        ["2", "GPUs"],
        ["t.py::test_longer", "1.900", "1.881", "to", "1.919", "95.0%", "40", "out", "of", "time"],
        ["2", "GPUs"],
        ["!", "one", "thing."],
        ["!", "another."],
    ]
    assert lines[0].index("1.900") == lines[2].index("1.900"), "figures stand below each other"


def test_what_was_not_measured_has_no_figures() -> None:
    nan = Interval(math.nan, math.nan, math.nan, 0.95)
    record = replace(_RECORD, speedup=nan, efficiency=math.nan, single_ns=(), parallel_ns=(), stopped="disabled")
    assert "nan" not in "".join(speedup_lines([("t.py::test_a", asdict(record))]))
    assert speedup_lines([("t.py::test_a", asdict(record))])[1] == "t.py::test_a  not measured"
