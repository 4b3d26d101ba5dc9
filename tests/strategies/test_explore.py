from __future__ import annotations

import pytest
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.strategies import explore, sample

NUMBERS = st.integers(0, 10**6)


def test_as_many_examples_are_checked_as_asked_for_and_nearly_all_differ() -> None:
    seen: list[int] = []
    exploration = explore(seen.append, NUMBERS, examples=100)
    assert exploration.passed
    assert exploration.examples == len(seen) == 100
    assert len(set(seen)) > 80


def test_the_same_seed_gives_the_same_examples_and_another_seed_others() -> None:
    assert sample(NUMBERS, 30, seed=1) == sample(NUMBERS, 30, seed=1)
    assert sample(NUMBERS, 30, seed=1) != sample(NUMBERS, 30, seed=2)


def at_most_100(number: int) -> None:
    if number > 100:
        raise AssertionError(f"{number} is too large")


def test_a_failure_is_shrunk_and_reported_with_its_error() -> None:
    failure = explore(at_most_100, NUMBERS, examples=50).failure
    assert failure is not None
    assert failure.example == 101
    assert str(failure.error) == "101 is too large"


def test_without_shrinking_the_first_failing_example_is_reported() -> None:
    checked: list[int] = []

    def check(number: int) -> None:
        checked.append(number)
        at_most_100(number)

    exploration = explore(check, NUMBERS, examples=50, shrink=False)
    assert exploration.failure is not None
    assert not exploration.passed
    first = next(number for number in checked if number > 100)
    assert exploration.failure.example == first
    assert exploration.examples == checked.index(first) + 1


def test_a_failure_that_comes_and_goes_is_reported_too() -> None:
    failed: list[int] = []

    def check(number: int) -> None:
        if number > 100 and not failed:
            failed.append(number)
            raise AssertionError("once")

    failure = explore(check, NUMBERS, examples=50).failure
    assert failure is not None
    assert failure.example == failed[0]


def test_an_error_that_is_no_verdict_passes_through() -> None:
    def broken(number: int) -> None:
        raise KeyError(number)

    with pytest.raises(KeyError):
        explore(broken, NUMBERS, examples=5)


def test_an_exploration_of_nothing_is_refused_and_is_no_pass() -> None:
    with pytest.raises(UsageError, match="examples=0"):
        explore(at_most_100, NUMBERS, examples=0)
    for empty in (st.nothing(), NUMBERS.filter(lambda _: False)):
        exploration = explore(at_most_100, empty, examples=5)
        assert (exploration.examples, exploration.failure, exploration.passed) == (0, None, False)


def test_a_strategy_with_one_example_ends_the_exploration_early() -> None:
    assert explore(at_most_100, st.just(5), examples=50).examples == 1
