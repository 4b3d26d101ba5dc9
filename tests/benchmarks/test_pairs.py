"""How pairs are measured."""

from __future__ import annotations

import time

import pytest
from pairs import Pairing, Pairs, quartiles


def test_each_pair_runs_both_sides_once_with_its_number_in_either_order() -> None:
    ran: list[tuple[str, int]] = []
    pairing = Pairing(lambda number: ran.append(("left", number)), lambda number: ran.append(("right", number)))
    for _ in range(20):
        pairing()
    for number in range(20):
        assert sorted(ran[2 * number : 2 * number + 2]) == [("left", number), ("right", number)]
    first = [side for side, _ in ran[::2]]
    assert 0 < first.count("left") < 20
    assert len(pairing.pairs) == 20


def test_a_side_that_takes_longer_is_seen_to_do_so() -> None:
    pairing = Pairing(lambda _: time.sleep(0.02), lambda _: time.sleep(0.01))
    for _ in range(5):
        pairing()
    assert 1.4 < quartiles(pairing.pairs.ratios)[1] < 2.6
    assert 5 < quartiles(pairing.pairs.differences_ms)[1] < 15


def test_another_clock_can_be_used() -> None:
    ticks = iter(range(10))
    pairing = Pairing(lambda _: next(ticks), lambda _: None, clock=lambda: float(next(ticks)))
    pairing()
    assert (pairing.pairs.left_s, pairing.pairs.right_s) == ([2.0], [1.0])


def test_figures_are_taken_pair_by_pair() -> None:
    """A machine that is ten times slower in one pair moves neither median."""
    pairs = Pairs(left_s=[0.002, 0.02, 0.002], right_s=[0.001, 0.01, 0.001])
    assert pairs.ratios == [2.0, 2.0, 2.0]
    assert pairs.differences_ms == pytest.approx([1.0, 10.0, 1.0])


def test_quartiles_of_known_values() -> None:
    assert quartiles([5.0, 1.0, 4.0, 2.0, 3.0]) == (2.0, 3.0, 4.0)
