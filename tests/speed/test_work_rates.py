"""Work and rates, and the options' values."""

from __future__ import annotations

import math

import pytest

from harness.errors import UsageError
from harness.speed.options import parse_budget_s, parse_share
from harness.speed.record import Work, rate_per_s


def test_a_rate_is_work_over_the_median_time() -> None:
    assert rate_per_s(2e9, [1_000_000_000, 4_000_000_000, 2_000_000_000]) == pytest.approx(1e9)
    assert rate_per_s(None, [1]) is None


def test_work_is_what_was_given() -> None:
    assert Work(flops=2.0) == Work(flops=2.0, moved_bytes=None)


@pytest.mark.parametrize("given", [{}, {"flops": 0.0}, {"flops": -1.0}, {"moved_bytes": math.inf}, {"flops": math.nan}])
def test_work_that_is_none_is_refused(given: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=r"^Work\("):
        Work(**given)


@pytest.mark.parametrize(("text", "seconds"), [("5", 5.0), ("0.5", 0.5), ("86400", 86400.0)])
def test_a_budget_is_read(text: str, seconds: float) -> None:
    assert parse_budget_s(text) == seconds


@pytest.mark.parametrize("text", ["0", "-1", "5s", "", "nan", "inf", "86401"])
def test_a_budget_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="accepted: seconds above 0"):
        parse_budget_s(text)


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("0.01", 0.01), (" 2.5% ", 0.025)])
def test_a_share_is_read(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["0", "0%", "100%", "1", "-1%", "one", "%", "nan"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="accepted: a percentage above 0% and below 100%"):
        parse_share(text)
