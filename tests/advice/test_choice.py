"""Which way is recommended, and with which words: rules on plain records."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from harness.advice.choice import choose, judge, with_choice
from harness.advice.record import BASELINE, Advice, Judgement, Way
from harness.judgement.verification import Verification
from harness.records import Exercised, Finding, Verdict
from harness.report.advice import print_advice
from harness.speed.record import DeviceMemory, Interval

ONE = Way(BASELINE, ("GPU:0",), "baseline", time_ns=2e6, lines=0, code="one")


def way(name: str, lower: float, value: float, upper: float, *, lines: int = 1, judgement: Judgement = "proved") -> Way:
    interval = Interval(value, lower, upper, 0.95)
    made = Way(name, ("GPU:0", "GPU:1"), judgement, speedup=interval, lines=lines, code=f"use {name}")
    return replace(made, time_ns=2e6 / value, single_ns=2e6)


def advice(*ways: Way, kind: str = "gpu", complete: bool = True) -> Advice:
    return Advice(
        "train.py:build", "gpu:2", "2 GPUs", True, kind, "a training step", 64, ways, complete=complete, elapsed_s=3.0
    )


@pytest.mark.parametrize(
    ("ways", "chosen"),
    [
        ([ONE], None),
        ([ONE, way("a", 1.2, 1.5, 1.8)], "a"),
        ([ONE, way("a", 0.9, 1.5, 2.1)], None),
        ([ONE, way("a", 1.0, 1.5, 2.1)], None),
        ([ONE, way("a", 0.5, 0.6, 0.7)], None),
        ([ONE, way("a", 1.2, 1.5, 1.8, judgement="wrong")], None),
        ([ONE, way("a", 1.2, 1.5, 1.8, judgement="not comparable"), way("b", 1.1, 1.2, 1.3)], "b"),
        ([ONE, way("a", 1.2, 1.3, 1.4), way("b", 1.6, 1.7, 1.8, lines=20)], "b"),
        # The intervals overlap: nobody knows which is faster, and one is less work.
        ([ONE, way("a", 1.4, 1.6, 1.8), way("b", 1.6, 1.7, 1.8, lines=20)], "a"),
    ],
)
def test_a_way_is_chosen_only_if_it_is_right_and_faster_for_certain(ways: list[Way], chosen: str | None) -> None:
    found = choose(ways)
    assert (found.name if found else None) == chosen
    assert with_choice(advice(*ways)).chosen == (chosen or BASELINE)


def test_the_sentence_has_the_reason_and_the_limits() -> None:
    found = with_choice(advice(ONE, way("make_parallel", 1.5, 1.6, 1.7)))
    assert found.recommendation == (
        "Use make_parallel on GPU:0 and GPU:1: 1.60 times as fast as one device (1.50 to 1.70), and proved to compute "
        "the same, with 1 line to change."
    )
    assert found.limits == "It holds for a batch of 64 rows on these devices: 2 GPUs."
    slower = with_choice(advice(ONE, way("make_parallel", 0.9, 0.97, 1.02), kind="logical-cpu"))
    assert slower.recommendation == (
        "Stay on one device (GPU:0): no other way is faster for certain; the best is make_parallel with a speedup of "
        "0.97 (0.90 to 1.02)."
    )
    assert slower.limits.endswith("They share the cores of this machine, so the times say nothing about GPUs.")
    software = with_choice(advice(ONE, way("make_parallel", 1.5, 1.6, 1.7), kind="software-gpu"))
    assert software.limits.endswith("Their times say nothing about real GPUs.")
    alone = with_choice(advice(ONE))
    assert "no other way computes the same, or can be compared" in alone.recommendation
    stopped = with_choice(advice(ONE, complete=False))
    assert stopped.recommendation.endswith("no other way was timed.")
    assert with_choice(advice()).recommendation == "No recommendation: one device was not timed."


def test_where_an_op_ran_is_no_reason_for_a_result() -> None:
    exercised = Exercised(programs=1, values=1)
    right = Verification(Verdict.PASS, "the run matches. It is one", (), exercised)
    assert judge(right) == ("verified", "the run matches")
    place = Finding("op-placement", "MatMul", "GPU:0", "GPU:1", "GPU:0", "an op ran elsewhere")
    placed = Verification(Verdict.FAIL, "an op ran elsewhere", (place,), exercised)
    assert judge(placed) == ("verified", "its results match those of one device on the example")
    value = replace(place, kind="value", message="the values differ")
    assert judge(replace(placed, findings=(place, value)))[0] == "wrong"


def test_a_way_that_may_be_too_large_is_not_recommended() -> None:
    def held(made: Way, *peaks: int) -> Way:
        return replace(made, memory=tuple(DeviceMemory(f"GPU:{n}", peak, "") for n, peak in enumerate(peaks)))

    one, fast, slow = held(ONE, 900), held(way("a", 2.0, 2.1, 2.2), 980, 400), held(way("b", 1.1, 1.2, 1.3), 500, 500)
    unknown = way("c", 0.7, 0.8, 0.9)

    def chosen(memory_bytes: int, *ways: Way) -> tuple[str, list[bool | None]]:
        found = with_choice(replace(advice(*ways), memory_bytes=memory_bytes))
        return found.chosen, [each.fits for each in found.ways]

    assert chosen(2000, one, fast, slow) == ("a", [True, True, True])
    assert chosen(1000, one, fast, slow, unknown) == ("b", [True, False, True, None])
    # One device is too large, so a way may be slower, but must surely fit.
    assert chosen(800, one, held(unknown, 700, 600), way("d", 3.0, 3.1, 3.2)) == ("c", [False, True, None])
    larger = with_choice(replace(advice(one, held(unknown, 700, 600)), memory_bytes=800))
    assert larger.recommendation.startswith("One device of 800 B is too small. Use c on ")
    nothing = with_choice(replace(advice(one, fast), memory_bytes=300))
    assert (nothing.chosen, nothing.recommendation) == (
        "",
        "No recommendation: no way that is right surely fits into 300 B on each device.",
    )


def test_what_was_predicted_is_said_to_be() -> None:
    one = replace(ONE, time_interval_ns=(1e6, 4e6))
    other = replace(way("make_parallel", 1.2, 1.6, 1.9), time_interval_ns=(0.5e6, 3e6), single_ns=None)
    found = with_choice(replace(advice(one, other, kind="predicted"), cards="2 H100 SXM", label="2 H100 SXM"))
    assert "predicted to be 1.60 times as fast as one device (1.20 to 1.90)" in found.recommendation
    assert "2 H100 SXM. All times are predicted from the profile of the card, and none was ever" in found.limits
    out = io.StringIO()
    from rich.console import Console

    print_advice(Console(file=out, width=80, highlight=False), found)
    assert out.getvalue().count("predicted  ") >= 2
    assert "make_parallel: predicted: 0.5 ms to 3 ms a step" in out.getvalue()


def test_the_table_fits_into_80_columns_and_leaves_out_what_is_wrong() -> None:
    from rich.console import Console

    memory = tuple(DeviceMemory(f"GPU:{number}", 1_234_567_890, "") for number in range(2))
    ways = (
        ONE,
        replace(way("MirroredStrategy with HierarchicalCopyAllReduce", 112.1, 123.4, 134.5, lines=18), memory=memory),
        Way("make_parallel", ("GPU:0", "GPU:1"), "wrong", "The function is not row-wise. " + "More. " * 100),
        Way("pipeline", ("GPU:0", "GPU:1"), "not comparable", "it draws random numbers"),
    )
    out = io.StringIO()
    print_advice(Console(file=out, width=200, highlight=False), with_choice(advice(*ways, complete=False)))
    lines = out.getvalue().splitlines()
    table = lines[2 : next(number for number, line in enumerate(lines) if line.startswith("make_parallel:"))]
    assert max(len(line.rstrip()) for line in table) <= 80
    assert not [line for line in table if "-" in line.replace("-134", "")], "cells are folded between words"
    text = "\n".join(lines)
    assert "make_parallel: WRONG, left out: The function is not row-wise. More." in text
    assert "pipeline: not comparable: it draws random numbers" in text
    assert "INTERRUPTED after 3.0 s: not all ways were tried" in text
    assert lines[-1] == "use MirroredStrategy with HierarchicalCopyAllReduce"
