from __future__ import annotations

import random

import pytest
from gate_validation import Count, around, count_planted, count_same_code, interval_widths, planted_loss
from synthetic_runs import record, run

from harness.speed.baseline import SavedRun
from harness.speed.record import SpeedupRecord

_NAMES = ("a", "b")


def _runs(count: int, speedup: float = 1.9, *, sigma: float = 0.004, seed: int = 0) -> list[SavedRun]:
    draw = random.Random(seed)
    return [
        run({name: _twice(speedup * draw.lognormvariate(0.0, sigma), 100 * n + ord(name) + seed) for name in _NAMES})
        for n in range(count)
    ]


def _twice(speedup: float, seed: int) -> SpeedupRecord:
    return record(speedup, seed=seed, second=speedup)


def _found(counts: list[Count]) -> dict[str, tuple[int, int]]:
    return {count.what: (count.found, count.of) for count in counts}


def test_every_run_is_a_baseline_once_and_judged_once() -> None:
    pairs = around(61, 0)
    assert sorted(base for base, _ in pairs) == sorted(new for _, new in pairs) == list(range(61))
    assert all(base != new for base, new in pairs)
    assert sum(abs(base - new) == 1 for base, new in pairs) < 10


def test_false_alarms_on_the_same_code_are_counted() -> None:
    found = _found(count_same_code(_runs(20), (0.05, 0.02)))
    assert found["the gate fails at 5%"] == (0, 40)
    assert found["the gate fails at 2%"] == (0, 40)
    assert found["worse: a loss is established"][0] <= 3
    assert found["--benchmark-compare-fail=median:5%"] == (0, 40)


def test_what_the_machine_does_to_both_sides_alarms_pytest_benchmark_alone() -> None:
    runs = _runs(20)
    for n in range(0, 20, 2):
        for each in runs[n].records.values():
            for times in ("single_ns", "parallel_ns", "second_single_ns", "second_parallel_ns"):
                object.__setattr__(each, times, tuple(round(1.3 * time) for time in getattr(each, times)))
    found = _found(count_same_code(runs, (0.05,)))
    assert found["the gate fails at 5%"] == (0, 40)
    assert found["--benchmark-compare-fail=median:5%"][0] > 5


def test_planted_slowdowns_are_found() -> None:
    same, planted = _runs(20), _runs(10, 1.9 / 1.1, seed=7)
    found = _found(count_planted(planted, same, (0.05, 0.02)))
    assert found["worse: a loss is established"] == (20, 20)
    assert found["the gate fails at 2%"] == (20, 20)
    assert planted_loss(planted, same) == pytest.approx(1 - 1 / 1.1, abs=0.01)
    at_threshold = _found(count_planted(_runs(10, 1.9 * 0.95, seed=7), same, (0.05, 0.02)))
    assert at_threshold["worse: a loss is established"] == (20, 20)
    assert at_threshold["the gate fails at 5%"][0] <= 2


def test_pairing_is_worth_what_wandering_costs() -> None:
    runs = _runs(4)
    for each in runs:
        for name in _NAMES:
            wander = [1.0 + 0.5 * ((n // 6) % 2) for n in range(60)]
            one = each.records[name]
            for times in ("single_ns", "parallel_ns"):
                moved = tuple(round(by * time) for by, time in zip(wander, getattr(one, times), strict=True))
                object.__setattr__(one, times, moved)
    widths = interval_widths(runs)
    assert widths.records == 8
    assert 3 < widths.lower <= widths.middle <= widths.upper
    assert interval_widths(_runs(4)).middle == pytest.approx(1.0, abs=0.4)


def test_a_count_says_how_much_it_is_worth() -> None:
    assert str(Count("x", 0, 300)) == "0 of 300 (0.0%, 95 % interval 0.0% to 1.2%)"
