"""Bandwidths: against a profile, against the link, and against their like."""

from __future__ import annotations

from itertools import permutations

from harness.hardware.copies.judge import Copy, Expecting, judge_bandwidths
from harness.hardware.expectation import Expected
from harness.hardware.machine import HOST
from harness.records import Card, Verdict

CARDS = {f"GPU:{index}": Card(f"GPU:{index}", "a card", f"/device:GPU:{index}") for index in range(4)}
EXPECTED = Expected("copy host-to-device", 50.0, "GB/s", "a data sheet", "2024-01-01", 0.5, 1.05)


def nothing(card: Card, figure: str) -> Expected | None:
    return None


def profile(card: Card, figure: str) -> Expected | None:
    return EXPECTED if figure == EXPECTED.figure else None


def to_cards(*gbs: float) -> list[Copy]:
    return [Copy("copy host-to-device", HOST, f"GPU:{index}", 2**24, each) for index, each in enumerate(gbs)]


def across(slow: dict[tuple[str, str], float]) -> list[Copy]:
    return [
        Copy("copy device-to-device", source, target, 2**24, slow.get((source, target), 300.0))
        for source, target in permutations(CARDS, 2)
    ]


def said(
    copies: list[Copy], expecting: Expecting = nothing, link: float | None = None, on_cpu: bool = False
) -> list[tuple[str, str, Verdict]]:
    links = {label: link for label in CARDS if link is not None}
    figures, wrong = judge_bandwidths(copies, CARDS, expecting, {k: v for k, v in links.items() if v}, on_cpu=on_cpu)
    assert [(figure.device, figure.peer) for figure in figures] == [(copy.source, copy.target) for copy in copies]
    return [(each.finding.kind, each.finding.device or "", each.finding.severity) for each in wrong]


def test_cards_that_differ_a_little_are_well() -> None:
    assert said(to_cards(50, 52, 47, 55)) == []
    assert said(to_cards(50)) == [], "one card has no like"
    assert said([]) == []
    assert said(across({})) == []


def test_a_slow_card_is_named_by_its_like() -> None:
    assert said(to_cards(50, 12, 51, 49)) == [("link", "/device:GPU:1", Verdict.FAIL)]
    assert said(to_cards(50, 33, 51, 49)) == [("link", "/device:GPU:1", Verdict.WARN)]
    assert said(to_cards(50, 12)) == [("link", "/device:GPU:1", Verdict.FAIL)], "of two, the slower one"


def test_a_profile_finds_cards_that_are_all_slow_and_one_that_is_too_fast() -> None:
    assert said(to_cards(20, 20), profile) == [("link", f"/device:GPU:{each}", Verdict.FAIL) for each in (0, 1)]
    assert said(to_cards(50, 60), profile) == [("rate", "/device:GPU:1", Verdict.FAIL)]
    assert said(to_cards(40, 52), profile) == []
    figures, _ = judge_bandwidths(to_cards(40), CARDS, profile, {}, on_cpu=False)
    assert (figures[0].expected, figures[0].expected_from) == (50.0, "profile: a data sheet")


def test_nothing_is_faster_than_its_link() -> None:
    assert said(to_cards(70, 70), link=63.0) == [("rate", f"/device:GPU:{each}", Verdict.FAIL) for each in (0, 1)]
    assert said(to_cards(60, 60), link=63.0) == []
    assert said(across({("GPU:0", "GPU:1"): 310.0}), link=63.0) == [], "NVLinks are no PCIe link"


def test_a_card_that_is_slow_with_all_others_is_named_once_and_a_pair_as_a_pair() -> None:
    slow = {(a, b): 60.0 for a, b in permutations(CARDS, 2) if "GPU:2" in (a, b)}
    assert said(across(slow)) == [("link", "/device:GPU:2", Verdict.FAIL)]
    _, wrong = judge_bandwidths(across({("GPU:1", "GPU:3"): 60.0}), CARDS, nothing, {}, on_cpu=False)
    assert [each.finding.where.split(",")[0] for each in wrong] == ["GPU:1 -> GPU:3"]


def test_nothing_is_said_of_logical_cpus_and_little_of_cores() -> None:
    for label, found in (("CPU:{}", 0), ("core/{}/CPU:0", 1)):
        cards = {label.format(index): Card(label.format(index), "a core", None) for index in range(4)}
        rates = zip(cards, (9, 1, 9, 9), strict=True)
        copies = [Copy("copy device-to-host", each, HOST, 2**24, gbs) for each, gbs in rates]
        figures, wrong = judge_bandwidths(copies, cards, nothing, {}, on_cpu=True)
        assert [figure.expected for figure in figures] == [9] * 4
        assert len(wrong) == found
    assert said(to_cards(10, 4), on_cpu=True) == []
    assert said(to_cards(10, 1), on_cpu=True) == [("link", "/device:GPU:1", Verdict.WARN)]
    assert said(to_cards(500, 400), profile, link=10.0, on_cpu=True) == [], "a copy within the cache may be fast"
