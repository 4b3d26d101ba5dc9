"""Wrong copies of many pairs: the way between the cards is to blame, a card, or a single link."""

from __future__ import annotations

from itertools import permutations

import pytest
from numpy_machine import gpus

from harness.hardware.blame import Trial, blame_copying, copying_findings
from harness.hardware.delivery import shared_way
from harness.hardware.finding import ACCESS_CONTROL, FABRIC_WAY, REPLACE
from harness.hardware.machine import Pair, PairLink
from harness.records import CheckResult, Exercised, RunRecord, Verdict
from harness.report.card_verdicts import verdict_lines

LINKS = PairLink(12, 25.0)


def label(number: int) -> str:
    return f"GPU:{number}"


def trials(count: int, wrong: set[tuple[int, int]], times: int = 4) -> list[Trial]:
    return [
        Trial(label(to), (source, to) in wrong, source=label(source))
        for source, to in permutations(range(count), 2)
        for _ in range(times)
    ]


def both(*pairs: tuple[int, int]) -> set[tuple[int, int]]:
    return {each for one, other in pairs for each in ((one, other), (other, one))}


def everywhere(count: int) -> set[tuple[int, int]]:
    return set(permutations(range(count), 2))


def at_times(count: int, pairs: set[tuple[int, int]], right: set[tuple[int, int]]) -> list[Trial]:
    """Copies of which each second one is wrong; those of ``right`` are not, by chance."""
    return [
        Trial(label(to), (source, to) in pairs - right and number % 2 == 0, source=label(source))
        for source, to in permutations(range(count), 2)
        for number in range(4)
    ]


SOCKETS = both(*((one, other) for one in range(4) for other in range(4, 8)))


@pytest.mark.parametrize(
    ("count", "wrong", "named"),
    [
        (2, everywhere(2), 2),
        (3, everywhere(3), 3),
        (8, everywhere(8), 8),
        (8, SOCKETS, 8),
        (4, both((0, 1), (2, 3)), 4),
    ],
    ids=["two cards", "three cards", "eight cards", "between the processors", "behind two switches"],
)
def test_pairs_that_are_all_wrong_both_ways_have_one_cause(count: int, wrong: set[tuple[int, int]], named: int) -> None:
    made = trials(count, wrong)
    blame = shared_way(made, {})
    assert blame is not None
    assert (len(blame.cards), blame.wrong, blame.way) == (named, 4 * len(wrong), "PCIe")
    cards = {card.label: card for card in gpus(count)}
    (found,) = copying_findings([blame], cards, {"GPU:0 -> GPU:1": "all words arrived as zeros"})
    assert (found.device, found.next_step, len(found.devices)) == (None, ACCESS_CONTROL, named)
    assert all(word in found.next_step for word in ("ACS", "IOMMU", "NCCL_P2P_DISABLE=1"))
    assert REPLACE not in found.next_step
    result = CheckResult("copies", Verdict.FAIL, "", "", Exercised(values=1), findings=(found,))
    record = RunRecord("", "", (), "", Verdict.FAIL, 1, True, (result,), cards=tuple(cards.values()))
    first = next(verdict_lines(record))
    assert first == f"the machine: switch off PCIe access control (ACS) and the IOMMU; {count} GPUs otherwise healthy"


@pytest.mark.parametrize(
    ("count", "wrong"),
    [
        (4, set()),
        (4, {(1, 3)}),
        (4, both((0, 2))),
        (4, both((1, 0), (1, 2), (1, 3))),
        (4, {(0, 1), (0, 2), (0, 3)}),
        (4, {(0, 1), (2, 3)}),
        (5, both((1, 2), (1, 4))),
        (6, both(*((card, other) for card in (0, 1) for other in range(6) if other != card))),
    ],
    ids=[
        "nothing",
        "one pair",
        "one link",
        "one card",
        "out of one card",
        "two pairs one way",
        "two links of one card",
        "two cards",
    ],
)
def test_what_a_card_or_a_link_explains_is_not_blamed_on_the_way(count: int, wrong: set[tuple[int, int]]) -> None:
    assert shared_way(trials(count, wrong), {}) is None
    if wrong:
        assert blame_copying(trials(count, wrong))


def test_what_switches_join_is_the_fabrics_and_a_bridge_is_left_out_where_only_pcie_is_wrong() -> None:
    joined: dict[Pair, PairLink] = {(label(one), label(other)): LINKS for one, other in everywhere(4)}
    blame = shared_way(trials(4, everywhere(4)), joined)
    assert blame is not None
    cards = {card.label: card for card in gpus(4)}
    assert next(copying_findings([blame], cards, {})).next_step == FABRIC_WAY
    bridges: dict[Pair, PairLink] = {
        (label(one), label(other)): LINKS if (one, other) in both((0, 1), (2, 3)) else PairLink()
        for one, other in everywhere(4)
    }
    blame = shared_way(trials(4, everywhere(4) - both((0, 1), (2, 3))), bridges)
    assert blame is not None
    assert blame.way == "PCIe"


def test_pairs_that_are_right_by_chance_belong_to_their_way_and_not_where_a_few_cards_explain_the_others() -> None:
    blame = shared_way(at_times(8, everywhere(8), {(0, 1), (4, 2), (6, 7)}), {})
    assert blame is not None
    assert (blame.way, len(blame.cards)) == ("PCIe", 8)
    of_two_cards = {pair for pair in everywhere(8) if {0, 3} & {*pair}}
    assert shared_way(at_times(8, of_two_cards, set()), {}) is None
