"""What all cards of a machine show alike is one finding."""

from __future__ import annotations

import pytest
from numpy_machine import gpus

from harness.hardware.finding import finding, joined
from harness.records import Card, Finding, Verdict


def made(card: Card, kind: str = "sensor", found: str = "345 MHz", step: str = "unlock it") -> Finding:
    message = f"runs at {found}"
    return finding(kind, card, "clock", expected="", found=found, message=message, next_step=step)


def test_alike_on_all_cards_is_one_finding_without_a_card() -> None:
    cards = gpus(4)
    (one,) = joined(map(made, cards), cards)
    assert (one.device, len(one.devices), one.message) == (None, 4, "each of the 4 GPUs runs at 345 MHz")
    differ = [made(card, found=f"{number} MHz") for number, card in enumerate(cards)]
    assert joined(differ, cards)[0].message == "each of the 4 GPUs runs at 0 MHz, or nearly so"


@pytest.mark.parametrize("kind", ["corruption", "memory", "arithmetic", "nondeterminism"])
def test_wrong_bits_are_each_cards_own(kind: str) -> None:
    cards = gpus(4)
    found = [made(card, kind) for card in cards]
    assert joined(found, cards) == found


def test_what_is_not_on_all_or_not_alike_stays_apart() -> None:
    cards = gpus(4)
    for found in (
        [made(card) for card in cards[:3]],
        [made(card, step=f"step {card.label}") for card in cards],
        [made(card) for card in cards[:2]],
    ):
        assert joined(found, cards) == found
    two = gpus(2)
    assert len(joined(map(made, two), two)) == 2, "of two cards, both may be wrong"
    worse = [*map(made, cards), made(cards[0], "link")]
    assert [each.device is None for each in joined(worse, cards)] == [True, False]
    assert joined(worse, cards)[0].severity is Verdict.FAIL
