"""Sets of instants."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from harness.speed.timeline.spans import Intervals, at_least, intersect, length, subtract, union

PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)


def instants(intervals: Intervals) -> set[int]:
    return {at for begin, end in intervals for at in range(begin, end)}


def test_pairs_that_touch_or_overlap_become_one() -> None:
    assert union([(5, 7), (0, 2), (2, 3), (6, 9), (4, 4)]) == [(0, 3), (5, 9)]


def test_length_counts_each_instant_once() -> None:
    assert length(union([(0, 10), (5, 15)])) == 15


@given(PAIRS, PAIRS, PAIRS)
def test_sets_of_instants_are_what_python_says_they_are(a: list[tuple[int, int]], b: Intervals, c: Intervals) -> None:
    one, two, three = union(a), union(b), union(c)
    sets = [instants(each) for each in (one, two, three)]
    assert instants(intersect(one, two)) == sets[0] & sets[1]
    assert instants(subtract(one, two)) == sets[0] - sets[1]
    every = {at for each in sets for at in each}
    assert instants(at_least([one, two, three], 2)) == {at for at in every if sum(at in each for each in sets) >= 2}
    assert length(one) == len(sets[0])
    assert all(earlier[1] < later[0] for earlier, later in pairwise(one))
