"""Memory that could not be had, did not keep its pattern or leaks; rates that fall behind or drift."""

from __future__ import annotations

import numpy as np
import pytest

from harness.hardware.expectation import Expected
from harness.hardware.machine import Mismatch, Pattern
from harness.hardware.memory.judge import judge_coverage, judge_growth, judge_pattern
from harness.hardware.sustained_load.judge import judge_drift, judge_expected, judge_spread
from harness.records import Card, Verdict

CARD = Card("GPU:0", "a card", "/device:GPU:0")
CARDS = {f"GPU:{index}": Card(f"GPU:{index}", "a card", f"/device:GPU:{index}") for index in range(4)}
MIB = 2**20


def test_nine_tenths_of_what_is_free_are_enough_and_less_is_not() -> None:
    assert judge_coverage(CARD, 90 * MIB, 100 * MIB) is None
    short = judge_coverage(CARD, 89 * MIB, 100 * MIB)
    assert short is not None
    assert short.finding.severity is Verdict.FAIL
    assert judge_coverage(CARD, 0, 100 * MIB) is not None


def test_a_word_that_changed_is_told_with_its_place_and_its_bits() -> None:
    assert judge_pattern(CARD, Pattern(0), "0x00", 4096, Mismatch(0)) is None
    wrong = judge_pattern(CARD, Pattern(0), "0x00", 4096, Mismatch(1, 2, 0x30000))
    assert wrong is not None
    assert wrong.finding.where == "pattern 0x00, byte 4112"
    assert "2 bit(s) of the first differ" in wrong.finding.message


def test_steady_growth_is_a_leak() -> None:
    used = [100 * MIB + step * MIB for step in range(20)]
    leak = judge_growth(CARD, used, 1000)
    assert leak is not None
    assert leak.finding.severity is Verdict.FAIL
    host = judge_growth(CARD, used, 1000, host=True)
    assert host is not None
    assert host.finding.severity is Verdict.WARN, "a process grows for many reasons"


@pytest.mark.parametrize(
    "used",
    [
        [100 * MIB] * 20,
        [100 * MIB] * 10 + [164 * MIB] * 10,
        [(164 - 64 * (step % 2)) * MIB for step in range(20)],
        [100 * MIB + step * 100 for step in range(20)],
        [(200 - step) * MIB for step in range(20)],
    ],
    ids=["flat", "one jump", "up and down", "a few bytes", "falling"],
)
def test_what_does_not_grow_all_the_time_is_no_leak(used: list[int]) -> None:
    assert judge_growth(CARD, used, 1000) is None


def test_too_few_samples_prove_nothing() -> None:
    with pytest.raises(ValueError, match="accepted: 6 or more"):
        judge_growth(CARD, [1, 2, 3], 10)


def _spread(*rates: float, on_cpu: bool = False) -> list[tuple[str | None, Verdict]]:
    by_label = {f"GPU:{index}": rate for index, rate in enumerate(rates)}
    return [(each.finding.device, each.finding.severity) for each in judge_spread(by_label, CARDS, on_cpu=on_cpu)]


def test_eight_percent_between_cards_are_normal() -> None:
    assert _spread(100, 94, 103, 98) == []
    assert _spread(100) == []
    assert _spread(100, 100, 90, 100) == [("/device:GPU:2", Verdict.WARN)]
    assert _spread(100, 100, 70, 100) == [("/device:GPU:2", Verdict.FAIL)]
    assert _spread(60, 100) == [("/device:GPU:0", Verdict.FAIL)], "of two, the slower one"


def test_a_card_far_above_its_like_is_too_fast_to_be_true() -> None:
    assert _spread(100, 190, 100, 99) == [("/device:GPU:1", Verdict.FAIL)]


def test_cpu_cores_are_warned_of_only_when_far_behind_and_logical_cpus_never() -> None:
    assert _spread(100, 55, 180, on_cpu=True) == []
    assert _spread(100, 20, 110, on_cpu=True) == [("/device:GPU:1", Verdict.WARN)]
    cpus = {f"CPU:{index}": Card(f"CPU:{index}", "a core") for index in range(3)}
    assert list(judge_spread({"CPU:0": 100, "CPU:1": 20, "CPU:2": 110}, cpus, on_cpu=True)) == [], "one pool of threads"
    assert judge_drift([100.0] * 10 + [5.0] * 10, cpus["CPU:0"], on_cpu=True) is None
    assert judge_drift([100.0] * 10 + [5.0] * 10, Card("core/0/CPU:0", "a core"), on_cpu=True) is not None


def test_a_profile_judges_a_card_by_itself_both_ways() -> None:
    expected = Expected("matmul float32", 100.0, "GFLOP/s", "a data sheet", "2024-01-01", 0.5, 1.05)
    assert judge_expected(80.0, CARD, expected) is None
    assert judge_expected(104.0, CARD, expected) is None
    slow, fast = judge_expected(40.0, CARD, expected), judge_expected(110.0, CARD, expected)
    assert slow is not None
    assert "40% of what its profile says" in slow.finding.message
    assert fast is not None
    assert "too fast to be true" in fast.finding.message


def test_a_rate_that_falls_is_drift_and_one_that_is_noisy_is_not() -> None:
    noise = np.random.default_rng(0).normal(1.0, 0.02, 30)
    assert judge_drift(list(100 * noise), CARD, on_cpu=False) is None
    falling = [100 - 2 * step for step in range(30)]
    found = judge_drift(falling, CARD, on_cpu=False)
    assert found is not None
    assert found.finding.severity is Verdict.FAIL
    assert judge_drift(falling, CARD, on_cpu=True) is None
    assert judge_drift([100.0, 10.0], CARD, on_cpu=False) is None, "two rates say nothing"
    assert judge_drift([100 - 0.5 * step for step in range(30)], CARD, on_cpu=False) is not None
