"""Every table that the commands print, with long names and large figures: in 80 columns, no digit is lost."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sample_records as samples
from rich.console import Console

from harness.advice.record import BASELINE, Advice, Way
from harness.checks.registry import SUITE
from harness.devices.name import DeviceName
from harness.evidence.op import Op, Transfer
from harness.evidence.table import table
from harness.evidence.trace import Trace
from harness.faults.selftest import COLUMNS
from harness.parallel.task_processes import TaskResult, TasksRecord
from harness.records import Verdict
from harness.report.advice import print_advice
from harness.report.checks import print_checks
from harness.report.comparison import Column, compare, print_comparison
from harness.report.gate import gate_lines
from harness.report.memory import print_memory
from harness.report.scale import print_scale
from harness.report.speedups import WIDTH, speedup_lines
from harness.report.tasks import print_tasks
from harness.report.terminal import make_table
from harness.speed.change import Rules, judged_change
from harness.speed.gate import FigureChange, Judgement
from harness.speed.memory.record import Alive, Course
from harness.speed.record import DeviceMemory, Interval
from harness.speed.scaling.record import Point, ScaleRecord

#: Names as long as those of real programs.
LONG = "/job:worker/replica:0/task:1234/device:GPU:15"
NAME = "tests/benchmarks/speedups/test_speedup_pipeline.py::test_a_pipeline_of_stages[microbatches-16]"
INTERVAL = Interval(1234.567, 1198.765, 1276.543, 0.95)


def _trace(console: Console) -> None:
    device, other = DeviceName.parse(LONG), DeviceName.parse(LONG.replace("GPU:15", "GPU:14"))
    kinds = [
        "SparseSoftmaxCrossEntropyWithLogits",
        *["ResourceSparseApplyAdagradV2WithAVeryLongNameIndeed98765"] * 1234,
    ]
    ops = tuple(Op(f"op{number}", kind, kind, device, device, "forward") for number, kind in enumerate(kinds))
    copies = [Transfer(device, other, f"t{number}", 123_456_789_012) for number in range(1357)]
    console.print(table(Trace(ops, copies)))


def _advice(console: Console) -> None:
    held = tuple(DeviceMemory(f"GPU:{number}", 98765 * 2**20, "allocator") for number in range(2))
    names = ("MirroredStrategy with HierarchicalCopyAllReduce", "pipeline with 16 micro-batches", "model in 12 stages")
    ways = [
        Way(name, ("GPU:0",), "not comparable", "", 123456e6, 234567e6, INTERVAL, memory=held, lines=1357)
        for name in names
    ]
    ways.insert(0, Way(BASELINE, ("GPU:0",), "baseline", time_ns=234567e6, code="one"))
    print_advice(console, Advice("p.py:build", "gpu:2", "2 GPUs", True, "gpu", "a step", 64, tuple(ways)))


def _memory(console: Console) -> None:
    part = Alive("gradients", "transformer/encoder/block_12/attention", "src/models/transformer.py:2468", 97 * 2**30, 1)
    print_memory(
        console, [Course(LONG, "allocator", 2, 97 * 2**30, 3_000_000, (part,) * 3, (0,), ((0,) * 9,), 9_000_000)]
    )


def _scale(console: Console) -> None:
    point = Point(
        *("gpu:16", 16, "gpu", "16 GPUs of one host, " + "long words " * 9, True, ()),
        *(123_456.78e6, Interval(123_456.78e6, 111_111.11e6, 133_333.33e6, 0.95), 15.67, INTERVAL, 0.9786),
    )
    print_scale(console, ScaleRecord("p.py:step", "strong", 3, (point, point), None, "few points", True, 0.95))


def _speedups(console: Console) -> None:
    record: dict[str, Any] = {"single_ns": [0] * 123_456}
    record |= {"speedup": {"value": 1234.567, "lower": 1198.765, "upper": 1276.543}}
    record |= {"efficiency": 0.98765, "stopped": "budget", "label": "2 GPUs", "warnings": []}
    console.print("\n".join(speedup_lines([(NAME, record), ("a", record)])), soft_wrap=True)


def _gate(console: Console) -> None:
    rules = Rules()
    change = judged_change(-0.123, 0.0543, 1e9, rules)
    row = FigureChange(NAME, 1234.567, 987.654, change, change)
    console.print("\n".join(gate_lines(Judgement(Verdict.FAIL, "", rules, "", "", (row, row)))), soft_wrap=True)


def _comparison(console: Console) -> None:
    whole = samples.eight_cards()
    runs = [whole, samples.scaled(whole, 123.4, "GPU:2"), whole, whole, whole]
    named = [Column(f"datacenter-3/rack-{number}/node-0123456", each) for number, each in enumerate(runs)]
    print_comparison(console, compare(named))


def _tasks(console: Console) -> None:
    done = TaskResult(
        1, "python train.py --rate 0.123456", LONG, Verdict.FAIL, -1234, "ended: " + "x" * 70, 0, 98765.4, ""
    )
    print_tasks(console, TasksRecord("gpu:16", (LONG,), ("a",), (done, replace(done, number=2)), complete=True))


def _checks(console: Console) -> None:
    print_checks(console, tuple(replace(check, typical_s=12345.6) for check in SUITE.checks[:2]))


def _selftest(console: Console) -> None:
    rows = [("placement of gradients", *["123,456"] * 5, *["98.7%"] * 3, "86,400 s")] * 2
    console.print(make_table(COLUMNS, rows, right=COLUMNS[1:]))


#: What is printed, and figures that it has to have whole: at least so many times.
TABLES: dict[str, tuple[Callable[[Console], None], dict[str, int]]] = {
    "trace": (_trace, {"1,235": 2, "1,357": 2, "167,530,862,689,284": 1, "worker/1234/GPU:15": 2, "98765": 1}),
    "advise": (
        _advice,
        {"123,000 ms": 3, "1.23e+03 (1.2e+03-1.28e+03)": 3, "96.5 GiB": 6, "1357": 3, "16": 1, "12": 1},
    ),
    "fit": (_memory, {"97 GiB": 4, ":2468": 3}),
    "scale": (_scale, {"123456.78 ms (111111.11 to 133333.33)": 2, "15.67 (1198.77 to 1276.54)": 2, "97.9%": 2}),
    "speedups": (_speedups, {"1234.567": 2, "1198.765 to 1276.543": 2, "98.8%": 2, "123456": 2}),
    "compare": (_gate, {"1234.567": 2, "987.654": 2, "-11.6%": 2}),
    "report": (_comparison, {"outlier": 3}),
    "run": (_tasks, {"-1234": 2, "98765.4 s": 2}),
    "selftest": (_selftest, {"123,456": 10, "98.7%": 6, "86,400 s": 2}),
    "list": (_checks, {"12345.6 s": 2}),
}


@pytest.mark.parametrize("command", TABLES)
def test_in_80_columns_no_table_loses_a_digit(command: str) -> None:
    show, figures = TABLES[command]
    texts = {}
    for width in (WIDTH, 1000):
        console = Console(file=io.StringIO(), width=width, color_system=None)
        show(console)
        assert isinstance(console.file, io.StringIO)
        texts[width] = console.file.getvalue()
    print(texts[WIDTH])
    for figure, count in figures.items():
        assert len(re.findall(rf"(?<![\d.]){re.escape(figure)}(?![\d])", texts[WIDTH])) >= count, figure
    # Whatever a wide terminal shows: each number of it is in the narrow one.
    assert set(re.findall(r"\d[\d.,]*\d|\d", texts[1000])) <= set(re.findall(r"\d[\d.,]*\d|\d", texts[WIDTH]))
    tables = [line for line in texts[WIDTH].splitlines() if re.search(r"[━─│┃]|  ", line)]
    assert max(map(len, tables)) <= WIDTH
