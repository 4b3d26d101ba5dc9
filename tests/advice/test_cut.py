"""The cut of a chain of layers: against all cuts."""

from __future__ import annotations

import itertools
import random

import pytest

from harness.advice.layers import best_cut


def largest(costs: list[float], cut: tuple[int, ...]) -> float:
    return max(sum(costs[begin:end]) for begin, end in itertools.pairwise(cut))


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_no_cut_of_twelve_unequal_layers_is_better(seed: int, stages: int) -> None:
    draw = random.Random(seed)
    costs = [draw.choice([0.0, 0.1, 1.0, 5.0]) * draw.random() for _ in range(12)]
    found = best_cut(costs, stages)
    assert (found[0], found[-1], len(found)) == (0, 12, stages + 1)
    every = ((0, *chosen, 12) for chosen in itertools.combinations(range(1, 12), stages - 1))
    assert largest(costs, found) == pytest.approx(min(largest(costs, each) for each in every))


def test_a_chain_with_fewer_layers_than_stages_has_fewer_stages() -> None:
    assert best_cut([1.0, 1.0], 4) == (0, 1, 2)
    assert best_cut([1.0], 3) == (0, 1)
