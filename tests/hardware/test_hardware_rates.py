"""Rates against a profile, the median of cards alike, and earlier runs: each rule beside what it leaves alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.hardware.card_profile import CardProfile, Expected
from harness.hardware.rates import Judged, judge_drift, judge_rates, rate_finding
from harness.records import Card, CheckResult, Exercised, Figure, Quantity, RunRecord, Verdict

NAME = "matmul float32"
PROFILE = CardProfile(
    "Example", ("Example GPU",), (Expected(NAME, 1000.0, "GFLOP/s", "a data sheet", "2024", low=0.5, high=1.05),)
)


def _cards(count: int, kind: str = "GPU", uuid: str = "GPU") -> list[Card]:
    return [
        Card(
            f"{kind}:{index}", "Example GPU", device=f"/device:{kind}:{index}", uuid=f"{uuid}-{index}" if uuid else None
        )
        for index in range(count)
    ]


def _figures(cards: list[Card], *values: float, name: str = NAME, unit: str = "GFLOP/s") -> list[Figure]:
    return [Figure(name, value, unit, card.label) for card, value in zip(cards, values, strict=True)]


def _run(cards: list[Card], *values: float, name: str = NAME) -> RunRecord:
    figures = tuple(_figures(cards, *values, name=name))
    result = CheckResult("arithmetic", Verdict.PASS, "", "", Exercised(values=1), figures=figures)
    return RunRecord("2026-01-01", "0", (), "gpu", Verdict.PASS, 0, True, (result,), cards=tuple(cards))


def _said(judged: Judged) -> list[tuple[str | None, Verdict]]:
    return [(each.card.device, each.severity) for each in judged.offences]


@pytest.mark.parametrize(
    ("value", "severity"),
    [(499.0, Verdict.FAIL), (500.0, None), (1000.0, None), (1050.0, None), (1051.0, Verdict.FAIL)],
)
def test_a_profile_says_from_where_to_where_a_rate_is_right(value: float, severity: Verdict | None) -> None:
    cards = _cards(1)
    judged = judge_rates(_figures(cards, value), cards, {"GPU:0": PROFILE})
    assert _said(judged) == ([("/device:GPU:0", severity)] if severity else [])
    assert judged.figures[0].expected == 1000.0
    assert judged.figures[0].expected_from == "profile Example (a data sheet, 2024)"
    assert "rates judged against: profile Example" in judged.scope[0]


def test_a_card_within_its_profile_that_is_slower_than_the_others_is_found() -> None:
    cards = _cards(4)
    judged = judge_rates(_figures(cards, 900, 905, 600, 898), cards, dict.fromkeys(("GPU:0", "GPU:2"), PROFILE))
    assert _said(judged) == [("/device:GPU:2", Verdict.FAIL)]
    assert judged.figures[2].expected == pytest.approx(899)
    assert judged.figures[2].expected_from == "median of 4 GPUs of this model"
    assert judged.figures[0].expected_from == "profile Example (a data sheet, 2024)"
    assert judged.figures[1].expected_from == "median of 4 GPUs of this model"


@pytest.mark.parametrize(
    ("value", "severity"),
    [(0.93, None), (0.91, Verdict.WARN), (0.81, Verdict.WARN), (0.79, Verdict.FAIL), (1.07, None), (1.1, Verdict.WARN),
     (1.21, Verdict.FAIL)],
)  # fmt: skip
def test_eight_percent_off_the_median_is_normal_and_twenty_fail(value: float, severity: Verdict | None) -> None:
    cards = _cards(5)
    judged = judge_rates(_figures(cards, 1, 1, 1, 1, value), cards, {})
    assert _said(judged) == ([("/device:GPU:4", severity)] if severity else [])


def test_of_two_cards_the_slower_one_alone_is_found() -> None:
    cards = _cards(2)
    assert _said(judge_rates(_figures(cards, 100, 60), cards, {})) == [("/device:GPU:1", Verdict.FAIL)]
    assert _said(judge_rates(_figures(cards, 100, 93), cards, {})) == []


def test_cards_of_other_models_and_other_figures_are_no_measure() -> None:
    cards = [*_cards(3), Card("GPU:3", "Slow GPU", device="/device:GPU:3")]
    figures = [*_figures(cards, 10, 10, 10, 1), *_figures(cards, 3, 3, 3, 1, name="memory bandwidth", unit="GB/s")]
    judged = judge_rates(figures, cards, {})
    assert judged.offences == ()
    assert judged.scope[-1].endswith("matmul float32 of GPU:3, memory bandwidth of GPU:3")


def test_a_card_that_lost_speed_since_earlier_runs_is_found_wherever_it_is_plugged_in() -> None:
    before = _cards(2)
    now = [Card("GPU:1", "Example GPU", device="/device:GPU:1", uuid="GPU-0")]
    history = [_run(before, value, 50) for value in (100, 101, 99)]
    judged = judge_rates(_figures(now, 70), now, {}, history)
    assert _said(judged) == [("/device:GPU:1", Verdict.FAIL)]
    assert judged.figures[0].expected == 100
    assert judged.figures[0].expected_from == "median of 3 earlier measurements"
    assert judge_rates(_figures(now, 95), now, {}, history).offences == ()


def test_the_history_of_another_card_or_figure_is_no_measure() -> None:
    cards = _cards(1)
    others = [_run(_cards(1, uuid="other"), 100), _run(cards, 100, name="memory bandwidth")]
    judged = judge_rates(_figures(cards, 10), cards, {}, others)
    assert judged.offences == ()
    assert judged.figures[0].expected is None
    assert "not judged (no profile" in judged.scope[0]


@pytest.mark.parametrize(("value", "found"), [(30.0, False), (20.0, True), (390.0, False), (410.0, True)])
def test_a_cpu_is_judged_widely_and_never_fails(value: float, found: bool) -> None:
    cards = _cards(3, "CPU", uuid="")
    judged = judge_rates(_figures(cards, 100, 100, value), cards, {}, [_run(cards, 100, 100, 100)])
    assert _said(judged) == ([("/device:CPU:2", Verdict.WARN)] if found else [])
    profile = {"CPU:0": PROFILE}
    assert _said(judge_rates(_figures(cards[:1], 100), cards[:1], profile)) == [("/device:CPU:0", Verdict.WARN)]


def test_one_figure_gives_one_finding_and_what_has_no_card_is_left_alone() -> None:
    cards = _cards(3)
    bus = Figure("all-reduce ring bus", 10.0, "GB/s")
    judged = judge_rates([*_figures(cards, 1000, 1000, 100), bus], cards, {"GPU:2": PROFILE}, [_run(cards, 1, 1, 1000)])
    assert [each.card.device for each in judged.offences].count("/device:GPU:2") == 1
    assert judged.figures[-1] == bus


def test_a_finding_says_what_was_expected_and_what_to_do_both_ways() -> None:
    cards = _cards(1)
    slow, fast = (
        rate_finding(judge_rates(_figures(cards, value), cards, {"GPU:0": PROFILE}).offences[0])
        for value in (400.0, 1100.0)
    )
    assert slow.message.startswith(
        "GPU:0 is too slow: matmul float32 at 400 GFLOP/s, 40% of 1,000 GFLOP/s (profile Exam"
    )
    assert slow.expected == "at least 500 GFLOP/s (profile Example (a data sheet, 2024))"
    assert "swap it" in slow.next_step
    assert fast.message.startswith("GPU:0 is impossibly fast")
    assert fast.expected.startswith("at most 1,050 GFLOP/s")
    assert "do not trust" in fast.next_step


def test_a_sustained_rate_is_judged_by_the_figure_of_its_profile() -> None:
    cards, sustained = _cards(1), "sustained matmul float32"
    figures = _figures(cards, 400.0, name=sustained)
    judged = judge_rates(figures, cards, {"GPU:0": PROFILE}, in_profile={sustained: NAME})
    assert _said(judged) == [("/device:GPU:0", Verdict.FAIL)]
    assert judge_rates(figures, cards, {"GPU:0": PROFILE}).offences == ()
    before = _run(cards, 900.0, name=sustained)
    assert _said(judge_rates(figures, cards, {}, [before])) == [("/device:GPU:0", Verdict.FAIL)], "and by history"


def test_latencies_are_not_judged_as_rates() -> None:
    cards = _cards(3)
    figures = [replace(each, quantity=Quantity.LATENCY) for each in _figures(cards, 1, 1, 100)]
    assert judge_rates(figures, cards, {}) == Judged(tuple(figures), (), ())


def test_a_rate_that_falls_is_drift_and_one_that_is_noisy_is_not() -> None:
    gpu, core, logical = _cards(1)[0], Card("core/0/CPU:0", "a core"), Card("CPU:0", "a core")
    noise = np.random.default_rng(0).normal(1.0, 0.02, 30)
    assert judge_drift(list(100 * noise), gpu) is None
    falling = [100 - 2 * step for step in range(30)]
    found = judge_drift(falling, gpu)
    assert found is not None
    assert found.severity is Verdict.FAIL
    assert judge_drift(falling, core) is None
    assert judge_drift([100.0, 10.0], gpu) is None, "two rates say nothing"
    warned = judge_drift([100 - 0.5 * step for step in range(30)], gpu)
    assert warned is not None
    assert warned.severity is Verdict.WARN
    far = judge_drift([100.0] * 10 + [5.0] * 10, core)
    assert far is not None
    assert far.severity is Verdict.WARN
    assert judge_drift([100.0] * 10 + [5.0] * 10, logical) is None, "one pool of threads"


def test_a_profile_that_has_no_figure_of_a_card_is_said() -> None:
    cards = _cards(2)
    profiles = dict.fromkeys(("GPU:0", "GPU:1"), PROFILE)
    other = judge_rates(_figures(cards, 5.0, 5.0, name="fft float32"), cards, profiles)
    assert [each for each in other.scope if each.startswith("the profile")] == [
        f"the profile Example of {label} has no value for: fft float32" for label in profiles
    ]
    known = judge_rates(_figures(cards, 900.0, 900.0), cards, profiles)
    assert not [each for each in known.scope if each.startswith("the profile")]
