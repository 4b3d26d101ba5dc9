"""Bandwidths: against a profile, the link, copies alike and earlier runs; and which card or pair is named."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from harness.hardware.card_profile import CardProfile, Expected
from harness.hardware.copies.judge import copy_findings
from harness.hardware.copies.measure import bandwidth
from harness.hardware.machine import HOST
from harness.hardware.rates import judge_rates
from harness.records import Card, CheckResult, Exercised, Figure, Finding, RunRecord, Verdict

CARDS = {f"GPU:{index}": Card(f"GPU:{index}", "a card", f"/device:GPU:{index}") for index in range(4)}
PROFILE = CardProfile(
    "Example", (), (Expected("copy host-to-device", 50.0, "GB/s", "a data sheet", "2024-01-01", 0.5, 1.05),)
)
PROFILES = dict.fromkeys(CARDS, PROFILE)


def to_cards(*gbs: float) -> list[Figure]:
    return [bandwidth("copy host-to-device", HOST, f"GPU:{index}", 2**24, each) for index, each in enumerate(gbs)]


def across(slow: dict[tuple[str, str], float]) -> list[Figure]:
    return [
        bandwidth("copy device-to-device", source, target, 2**24, slow.get((source, target), 300.0))
        for source, target in permutations(CARDS, 2)
    ]


def found(
    copies: list[Figure],
    profiles: dict[str, CardProfile] | None = None,
    link: float | None = None,
    cards: dict[str, Card] | None = None,
    history: tuple[RunRecord, ...] = (),
) -> list[Finding]:
    of = CARDS if cards is None else cards
    peaks = {} if link is None else dict.fromkeys(of, link)
    judged = judge_rates(copies, list(of.values()), profiles or {}, history, peaks=peaks)
    assert [(figure.device, figure.peer) for figure in judged.figures] == [(copy.device, copy.peer) for copy in copies]
    return list(copy_findings(judged.offences, copies, of))


def told(*arguments: object, **named: object) -> list[tuple[str, str, Verdict]]:
    return [(each.kind, each.device or "", each.severity) for each in found(*arguments, **named)]  # type: ignore[arg-type]


def test_cards_that_differ_a_little_are_well() -> None:
    assert told(to_cards(50, 52, 47, 55)) == []
    assert told(to_cards(50)) == [], "one card has no like"
    assert told([]) == []
    assert told(across({})) == []


def test_a_slow_card_is_named_by_its_like() -> None:
    assert told(to_cards(50, 12, 51, 49)) == [("link", "/device:GPU:1", Verdict.FAIL)]
    assert told(to_cards(50, 33, 51, 49)) == [("link", "/device:GPU:1", Verdict.WARN)]
    assert told(to_cards(50, 12)) == [("link", "/device:GPU:1", Verdict.FAIL)], "of two, the slower one"


def test_a_profile_finds_cards_that_are_all_slow_and_one_that_is_too_fast() -> None:
    assert told(to_cards(20, 20), PROFILES) == [("link", f"/device:GPU:{each}", Verdict.FAIL) for each in (0, 1)]
    assert told(to_cards(50, 60), PROFILES) == [("rate", "/device:GPU:1", Verdict.FAIL)]
    assert told(to_cards(40, 52), PROFILES) == []
    judged = judge_rates(to_cards(40), list(CARDS.values()), PROFILES)
    assert judged.figures[0].expected == 50.0
    assert judged.figures[0].expected_from == "profile Example (a data sheet, 2024-01-01)"


def test_nothing_is_faster_than_its_link() -> None:
    assert told(to_cards(70, 70), link=63.0) == [("rate", f"/device:GPU:{each}", Verdict.FAIL) for each in (0, 1)]
    assert told(to_cards(60, 60), link=63.0) == []
    assert told(across({("GPU:0", "GPU:1"): 310.0}), link=63.0) == [], "NVLinks are no PCIe link"


def test_a_card_that_is_slow_with_all_others_is_named_once_and_a_pair_as_a_pair() -> None:
    slow = {(a, b): 60.0 for a, b in permutations(CARDS, 2) if "GPU:2" in (a, b)}
    assert told(across(slow)) == [("link", "/device:GPU:2", Verdict.FAIL)]
    assert [each.pair for each in found(across({("GPU:1", "GPU:3"): 60.0}))] == [("GPU:1", "GPU:3")]


def test_nothing_is_said_of_logical_cpus_and_little_of_cores() -> None:
    for label, count in (("CPU:{}", 0), ("core/{}/CPU:0", 1)):
        cards = {label.format(index): Card(label.format(index), "a core", None) for index in range(4)}
        rates = list(zip(cards, (9, 1, 9, 9), strict=True))
        copies = [bandwidth("copy device-to-host", each, HOST, 2**24, gbs) for each, gbs in rates]
        assert [figure.expected for figure in judge_rates(copies, list(cards.values()), {}).figures] == [9] * 4
        assert len(found(copies, cards=cards)) == count
        assert [each.severity for each in found(copies, cards=cards)] == [Verdict.WARN] * count
        assert found(copies[:1], cards=cards, link=1.0) == [], "a copy within the cache may be fast"


@pytest.mark.parametrize(("before", "severity"), [(50.0, None), (80.0, Verdict.WARN), (120.0, Verdict.FAIL)])
def test_a_copy_that_lost_speed_since_an_earlier_run_is_found(before: float, severity: Verdict | None) -> None:
    """All cards are slow alike, so that only the history can tell; the card has moved to another slot since."""
    card = replace(CARDS["GPU:0"], uuid="GPU-a")
    old = replace(card, label="GPU:3")
    copies = (bandwidth("copy host-to-device", HOST, "GPU:3", 2**24, before),)
    result = CheckResult("copies", Verdict.PASS, "", "", Exercised(values=1), figures=copies)
    run = RunRecord("2026-01-01", "0", (), "gpu", Verdict.PASS, 0, True, (result,), cards=(old,))
    now = to_cards(50)
    assert told(now, cards={"GPU:0": card}, history=(run,)) == (
        [("link", "/device:GPU:0", severity)] if severity else []
    )
    assert told(now, cards={"GPU:0": replace(card, uuid="GPU-b")}, history=(run,)) == [], "another card"
