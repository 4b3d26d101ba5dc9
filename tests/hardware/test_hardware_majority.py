"""Who is to blame: a card, an index, a pair, or all alike; and how often."""

from __future__ import annotations

import numpy as np
import pytest

from harness.hardware.blame import Blame, Trial, blame_computing, blame_copying, unseen_rate, wilson

CARDS = ("GPU:0", "GPU:1", "GPU:2", "GPU:3")


def computed(wrong: set[tuple[str, int]], rounds: int = 3, probability: float = 1.0, seed: int = 0) -> list[Trial]:
    """Every index on every card, ``rounds`` times; those in ``wrong`` are wrong with that probability."""
    draw = np.random.default_rng(seed)
    return [
        Trial(card, (card, index) in wrong and bool(draw.random() < probability), index, found=number, program="p")
        for number in range(rounds)
        for index in range(len(CARDS))
        for card in CARDS
    ]


def copied(wrong: set[tuple[str, str]], cards: tuple[str, ...] = CARDS, probability: float = 1.0) -> list[Trial]:
    draw = np.random.default_rng(1)
    return [
        Trial(target, (source, target) in wrong and bool(draw.random() < probability), source=source)
        for _ in range(10)
        for source in cards
        for target in cards
        if source != target
    ]


def named(blame: list[Blame]) -> list[tuple[object, ...]]:
    return [
        tuple(part for part in (each.kind, each.source, each.card, each.index) if part is not None) for each in blame
    ]


def test_nothing_wrong_blames_nobody() -> None:
    assert blame_computing(computed(set())) == []
    assert blame_copying(copied(set())) == []


def test_a_card_is_wrong_at_every_index_and_an_index_on_every_card() -> None:
    card = {("GPU:2", index) for index in range(4)}
    index = {(card, 1) for card in CARDS}
    assert named(blame_computing(computed(card))) == [("card", "GPU:2")]
    assert named(blame_computing(computed(index))) == [("index", 1)]
    assert sorted(named(blame_computing(computed(card | index)))) == [("card", "GPU:2"), ("index", 1)]
    assert all(each.sure and not each.intermittent for each in blame_computing(computed(card | index)))


@pytest.mark.parametrize("seed", range(20))
def test_a_card_that_is_wrong_at_times_is_told_from_an_index(seed: int) -> None:
    trials = computed({("GPU:3", index) for index in range(4)}, rounds=60, probability=0.05, seed=seed)
    blame = blame_computing(trials)
    assert blame[0].kind == "card"
    assert blame[0].card == "GPU:3"
    assert {each.card for each in blame} == {"GPU:3"}
    assert blame[0].intermittent
    low, high = wilson(blame[0].wrong, blame[0].trials)
    assert low < blame[0].wrong / blame[0].trials < high


@pytest.mark.parametrize("cards", [2, 3, 4])
def test_cards_that_are_all_wrong_at_times_are_told_from_indices(cards: int) -> None:
    every = {(card, index) for card in CARDS[:cards] for index in range(cards)}
    for seed in range(40):
        trials = [
            each for each in computed(every, 60, 0.2, seed) if each.card in CARDS[:cards] and (each.index or 0) < cards
        ]
        assert sorted(named(blame_computing(trials))) == [("card", card) for card in CARDS[:cards]], seed


@pytest.mark.parametrize("seed", range(20))
def test_an_index_and_a_card_that_are_wrong_at_times_are_both_named(seed: int) -> None:
    index = {(card, 1) for card in CARDS}
    card = {("GPU:2", each) for each in range(4)}
    assert named(blame_computing(computed(index, 60, 0.2, seed))) == [("index", 1)]
    assert sorted(named(blame_computing(computed(index | card, 60, 0.2, seed)))) == [("card", "GPU:2"), ("index", 1)]
    two = [each for each in computed(index | card, 60, 0.2, seed) if each.card in CARDS[1:3]]
    assert sorted(named(blame_computing(two))) == [("card", "GPU:2"), ("index", 1)], "of two cards too"


def test_one_wrong_result_alone_is_not_said_to_be_sure() -> None:
    trials = [*computed(set()), Trial("GPU:1", True, 2, program="p")]
    (blame,) = blame_computing(trials)
    assert (blame.kind, blame.card, blame.sure) == ("card", "GPU:1", False)


def test_a_program_that_is_always_wrong_on_a_card_is_named() -> None:
    right = [Trial(card, False, 0, program="sums") for card in CARDS]
    wrong = [Trial(card, card == "GPU:0", 0, program="matmul float32") for card in CARDS]
    (blame,) = blame_computing([*right, *wrong] * 5)
    assert (blame.card, blame.programs, blame.intermittent) == ("GPU:0", ("matmul float32",), False)


def test_all_cards_that_agree_on_another_answer_are_not_blamed_one_by_one() -> None:
    alike = [Trial(card, True, index, found=index, program="p") for index in range(2) for card in CARDS]
    assert named(blame_computing(alike)) == [("all",)]
    different = [Trial(card, True, 0, found=number, program="p") for number, card in enumerate(CARDS)]
    assert "all" not in {each.kind for each in blame_computing(different)}
    assert named(blame_computing([Trial("GPU:0", True, 0, found=1)])) == [("card", "GPU:0")], "one card has no majority"


def test_an_ordered_pair_is_told_from_its_way_back_and_from_its_cards() -> None:
    assert named(blame_copying(copied({("GPU:1", "GPU:3")}))) == [("pair", "GPU:1", "GPU:3")]
    both = {("GPU:1", "GPU:3"), ("GPU:3", "GPU:1")}
    assert sorted(named(blame_copying(copied(both)))) == [("pair", "GPU:1", "GPU:3"), ("pair", "GPU:3", "GPU:1")]
    into = {(card, "GPU:2") for card in CARDS if card != "GPU:2"}
    assert named(blame_copying(copied(into))) == [("into", "GPU:2")]
    out_of = {("GPU:0", card) for card in CARDS if card != "GPU:0"}
    assert named(blame_copying(copied(out_of))) == [("out-of", "GPU:0")]
    two = ("GPU:0", "GPU:1")
    assert named(blame_copying(copied({two}, two))) == [("pair", "GPU:0", "GPU:1")], "of two cards, the pair"


@pytest.mark.parametrize("probability", [0.4, 1.0])
def test_two_pairs_of_a_card_are_told_from_the_card(probability: float) -> None:
    pairs = {("GPU:0", "GPU:1"), ("GPU:0", "GPU:3")}
    trials = [each for _ in range(4) for each in copied(pairs, probability=probability)]
    assert sorted(named(blame_copying(trials))) == [("pair", *pair) for pair in sorted(pairs)]
    out_of = {("GPU:0", card) for card in CARDS[1:]}
    assert named(blame_copying(copied(out_of, probability=probability))) == [("out-of", "GPU:0")]


def test_a_pair_beside_one_of_its_card_that_is_always_wrong_is_a_pair_too() -> None:
    always, at_times = ("GPU:1", "GPU:0"), ("GPU:1", "GPU:2")
    cards = CARDS[:3]
    trials = [*copied({always}, cards), *copied({always, at_times}, cards, 0.8)]
    trials = [each for each in trials if (each.source, each.card) != always or each.wrong]
    assert sorted(named(blame_copying(trials))) == [("pair", *always), ("pair", *at_times)]


def test_few_wrong_copies_do_not_tell_a_card_from_its_links_for_sure() -> None:
    few = [Trial(card, number < 2, source="GPU:0") for number, card in enumerate((*CARDS[1:], *CARDS[1:]))]
    (blame,) = blame_copying(few)
    assert (blame.kind, blame.sure) == ("out-of", False)
    (every,) = blame_copying([Trial(card, at == 0, source="GPU:0") for at in range(2) for card in CARDS[1:]])
    assert (every.kind, every.sure) == ("out-of", True)


def test_a_pair_that_is_wrong_at_times_is_named_with_its_rate() -> None:
    (blame,) = blame_copying(copied({("GPU:2", "GPU:0")}, probability=0.5))
    assert (blame.kind, blame.source, blame.card, blame.intermittent) == ("pair", "GPU:2", "GPU:0", True)
    assert blame.trials == 10


def test_intervals_are_wilsons() -> None:
    """The example of 10 in 100 is in textbooks: 5.5 % to 17.4 %."""
    assert wilson(10, 100) == pytest.approx((0.0552, 0.1744), abs=1e-4)
    assert wilson(0, 100)[0] == 0
    assert wilson(100, 100)[1] == 1
    assert wilson(0, 0) == (0, 1)


def test_what_was_not_seen_is_bounded_by_the_number_of_trials() -> None:
    assert unseen_rate(300) == pytest.approx(0.01, rel=0.01), "the rule of three"
    assert unseen_rate(0) == 1
    assert (1 - unseen_rate(59)) ** 59 == pytest.approx(0.05)
