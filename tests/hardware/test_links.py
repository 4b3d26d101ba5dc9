"""How pairs of cards are joined, and that their copies are judged by what joins them."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest
from described_machines import H100
from fake_nvml import fake_nvml, refuse
from simulated import machine, results

from harness.hardware.copies import check as copies
from harness.hardware.copies.judge import copy_findings
from harness.hardware.copies.measure import ACROSS, BOTH, TO_CARD, bandwidth
from harness.hardware.links import read_links
from harness.hardware.machine import HOST, Pair, PairLink
from harness.hardware.nvml import Nvml
from harness.hardware.rates import judge_rates
from harness.records import Card, Finding, Verdict

pytest_plugins = ["little_data"]
pytestmark = pytest.mark.usefixtures("little_data")

CARDS = [
    Card(f"GPU:{at}", "a card", f"/device:GPU:{at}", uuid=f"GPU-{at}", pci=f"0000:{0x1B + at:02X}:00.0")
    for at in range(4)
]
SWITCH = "0000:05:00.0"


def wired(*links: list[str], kind: Any = refuse, **changes: Any) -> dict[Pair, PairLink]:
    """Read the links of a driver whose card ``n`` has active links to the addresses of ``links[n]``."""
    uuids = [card.uuid for card in CARDS]
    driver = fake_nvml(
        nvmlDeviceGetHandleByUUID=lambda uuid: uuids.index(uuid),
        nvmlDeviceGetNvLinkState=lambda card, link: 1 if link < len(links[card]) else refuse(),
        nvmlDeviceGetNvLinkRemoteDeviceType=kind,
        nvmlDeviceGetNvLinkRemotePciInfo=lambda card, link: SimpleNamespace(busId=f"0000{links[card][link]}"),
        nvmlDeviceGetTopologyCommonAncestor=lambda one, other: 10 if {one, other} in ({0, 1}, {2, 3}) else 50,
        **changes,
    )
    return read_links(Nvml(driver), CARDS[: len(links)], CARDS)


def test_a_switch_joins_all_cards_by_all_their_links() -> None:
    """Whether the driver says that it is a switch, or gives an address that no card has."""
    for kind in (lambda card, link: 2, refuse):
        found = wired(*[[SWITCH] * 18] * 3, [SWITCH] * 17, kind=kind)
        assert found["GPU:0", "GPU:1"] == PairLink(18, 26.562)
        assert found["GPU:0", "GPU:3"] == found["GPU:3", "GPU:0"] == PairLink(17, 26.562)
        assert str(found["GPU:0", "GPU:1"]) == "18 NVLinks of 26.56 GB/s each"


def test_cards_that_are_wired_to_one_another_have_the_links_of_their_pair() -> None:
    pci = [card.pci or "" for card in CARDS]
    hgx4 = wired(*[[pci[other] for other in range(4) if other != at for _ in range(4)] for at in range(4)])
    assert set(hgx4.values()) == {PairLink(4, 26.562)}
    bridged = wired([pci[1]] * 12, [pci[0]] * 12, [], [])
    assert bridged["GPU:1", "GPU:0"].nvlinks == 12
    assert bridged["GPU:2", "GPU:3"] == PairLink(way="one PCIe switch")
    assert bridged["GPU:0", "GPU:3"] == PairLink(way="the link between processors")


def test_what_the_driver_does_not_say_is_not_guessed() -> None:
    silent = wired([SWITCH], [SWITCH], nvmlDeviceGetHandleByIndex=refuse)
    assert silent == {(one, other): PairLink(1, 26.562) for one, other in permutations(("GPU:0", "GPU:1"))}
    assert read_links(Nvml(fake_nvml(nvmlDeviceGetHandleByUUID=refuse)), CARDS, CARDS) == {}
    assert read_links(Nvml(None), CARDS, CARDS) == {}


def judged(
    gbs: dict[Pair, float], links: dict[Pair, PairLink], name: str = ACROSS, peak: float = 63.0
) -> list[Finding]:
    figures = [bandwidth(name, *pair, 2**26, each) for pair, each in gbs.items()]
    rates = judge_rates(figures, CARDS, {}, peaks={card.label: peak for card in CARDS}, links=links)
    return list(copy_findings(rates.offences, figures, {card.label: card for card in CARDS}))


PAIRS = list(permutations([card.label for card in CARDS], 2))
#: Two pairs with two links each, as in a DGX-1; the others are joined by one, or by none.
MIXED = {
    pair: PairLink(2, 25.0)
    if set(pair) in ({"GPU:0", "GPU:1"}, {"GPU:2", "GPU:3"})
    else PairLink(1, 25.0)
    if "GPU:0" in pair
    else PairLink(way="PCIe")
    for pair in PAIRS
}


def test_pairs_with_other_links_are_not_expected_to_be_as_fast() -> None:
    speeds = {pair: (link.gbs or 11.0) * 0.85 for pair, link in MIXED.items()}
    assert judged(speeds, MIXED) == []
    assert judged({pair: 1.6 * each for pair, each in speeds.items()}, MIXED, BOTH) == []
    (slow,) = judged({**speeds, ("GPU:0", "GPU:1"): 21.0}, MIXED)
    assert (slow.pair, slow.severity) == (("GPU:0", "GPU:1"), Verdict.FAIL)
    assert "2 NVLinks of 25 GB/s" in slow.expected


def test_all_pairs_slow_alike_are_found_by_what_their_links_carry() -> None:
    links = dict.fromkeys(PAIRS, PairLink(18, 26.5))
    assert judged(dict.fromkeys(PAIRS, 400.0), links) == []
    assert {each.severity for each in judged(dict.fromkeys(PAIRS, 200.0), links)} == {Verdict.FAIL}
    assert judged(dict.fromkeys(PAIRS, 200.0), {}) == [], "without links there is nothing to compare with"
    assert judged(dict.fromkeys(PAIRS, 20.0), dict.fromkeys(PAIRS, PairLink(way="PCIe"))) == []
    assert {each.kind for each in judged(dict.fromkeys(PAIRS, 90.0), dict.fromkeys(PAIRS, PairLink()))} == {"rate"}


@pytest.mark.parametrize("slowest", [3.0, 6.0, 12.0])
def test_a_slow_copy_from_pageable_memory_is_the_hosts_where_the_link_is_good(slowest: float) -> None:
    figures = [bandwidth(TO_CARD, HOST, card.label, 2**26, 12.0) for card in CARDS]
    figures[2] = bandwidth(TO_CARD, HOST, "GPU:2", 2**26, slowest)
    labels = [card.label for card in CARDS]
    peaks = dict.fromkeys(labels, 63.0)
    assert judge_rates(figures, CARDS, {}, peaks=peaks, full_links=labels).offences == ()
    found = judge_rates(figures, CARDS, {}, peaks=peaks, full_links=[each for each in labels if each != "GPU:2"])
    assert [each.card.label for each in found.offences] == (["GPU:2"] if slowest < 9 else [])
    fast = [bandwidth(TO_CARD, HOST, "GPU:0", 2**26, 70.0)]
    assert judge_rates(fast, CARDS, {}, peaks=peaks, full_links=labels).offences, "nothing is faster than its link"


@pytest.mark.parametrize(
    ("count", "model", "cards"),
    [
        (4, "NVIDIA A100-SXM4-80GB", "bridges = [[0,1,4],[0,2,4],[0,3,4],[1,2,4],[1,3,4],[2,3,4]]"),
        (3, "NVIDIA H100 PCIe", "bridges = [[0, 1, 12]]\nlink_gbs = 20.0"),
        (2, "NVIDIA L40S", ""),
    ],
)
def test_a_machine_in_good_order_passes_however_its_cards_are_joined(count: int, model: str, cards: str) -> None:
    outcome = results(machine(count, model, cards=cards), [copies.CHECK])["copies"]
    assert (outcome.verdict, outcome.findings) == (Verdict.PASS, ())


def test_what_starting_copies_takes_is_not_in_their_rate() -> None:
    """Starting a call takes as long as copying 94 MB between two H100."""
    outcome = results(machine(2, H100, noise=0.0), [copies.CHECK])["copies"]
    across = [each for each in outcome.figures if each.name == ACROSS and each.size_bytes == 8 * 2**20]
    assert [each.value for each in across] == [pytest.approx(18 * 21.0, rel=0.02)] * 2
