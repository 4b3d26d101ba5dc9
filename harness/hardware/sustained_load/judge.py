"""Judges rates under sustained load: the slowest card against the median of the machine, and drift over time."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from harness.hardware.advised import Advised, advised
from harness.hardware.expectation import Expected
from harness.hardware.naming import shares_threads
from harness.records import Card, Verdict

#: GPUs of one model differ by 8 % in rate; what is below is warned of, and far below fails.
WARNS_BELOW, FAILS_BELOW = 0.92, 0.80
#: No card of a model is faster than its like by so much.
FAILS_ABOVE = 1.25
#: The rate of the last third against that of the first one: a card that warms up loses a few percent.
DRIFT_WARNS, DRIFT_FAILS = 0.92, 0.80
#: CPU cores have a host that may do other things: only what is far off is said. Of the logical CPUs of one process
#: nothing is, for they share their threads.
CPU_WARNS_BELOW, CPU_DRIFT_WARNS = 0.4, 0.4

_LOOK = "look at its temperature, power, clocks and throttle reasons in this check's sensors, and at who else uses it"


def judge_spread(rates: Mapping[str, float], cards: Mapping[str, Card], *, on_cpu: bool) -> Iterator[Advised]:
    """Rates of one operation by card, in GFLOP/s, against the median of those of the same model."""
    for label, rate in rates.items():
        like = [each for other, each in rates.items() if cards[other].name == cards[label].name]
        if len(like) < 2 or shares_threads(cards[label]):
            continue
        middle = statistics.median_high(like)
        share = rate / middle
        text = f"{rate:.0f} GFLOP/s"
        expected = f"about {middle:.0f} GFLOP/s, the median of its like"
        low, bad = (CPU_WARNS_BELOW, 0.0) if on_cpu else (WARNS_BELOW, FAILS_BELOW)
        if share < low:
            said = f"runs at {share:.0%} of the median of its like under load: {text} of {middle:.0f}"
            severity = Verdict.FAIL if share < bad else Verdict.WARN
            yield advised("rate", cards[label], "sustained matmul", expected, text, said, _LOOK, severity)
        elif not on_cpu and share > FAILS_ABOVE:
            yield _too_high(cards[label], expected, text, f"{share:.2f} times the median of its like")


def judge_expected(rate: float, card: Card, expected: Expected) -> Advised | None:
    """A rate in GFLOP/s against what the card's profile says."""
    value = expected.value
    text = f"{rate:.0f} GFLOP/s"
    if too_high(rate, expected):
        return _too_high(
            card, f"at most {value * expected.high:.0f} GFLOP/s", text, f"{rate / value:.2f} of its profile"
        )
    if rate < value * expected.low:
        said = f"runs at {rate / value:.0%} of what its profile says under load: {text} of {value:.0f}"
        least = f"at least {value * expected.low:.0f} GFLOP/s ({expected.source})"
        return advised("rate", card, "sustained matmul", least, text, said, _LOOK)
    return None


def too_high(rate: float, expected: Expected | None) -> bool:
    """Whether a rate is beyond what a profile says can be."""
    return expected is not None and rate > expected.value * expected.high


def judge_drift(rates: Sequence[float], card: Card, *, on_cpu: bool) -> Advised | None:
    """Rates of one card over time, in order. Fewer than six say nothing."""
    if len(rates) < 6 or shares_threads(card):
        return None
    third = len(rates) // 3
    before, after = statistics.median(rates[:third]), statistics.median(rates[-third:])
    share = after / before
    warns, fails = (CPU_DRIFT_WARNS, 0.0) if on_cpu else (DRIFT_WARNS, DRIFT_FAILS)
    if share >= warns:
        return None
    return advised(
        "rate",
        card,
        "drift under load",
        f"at least {warns:.0%} of its first rate",
        f"{share:.0%}",
        f"slowed down under load from {before:.0f} to {after:.0f} GFLOP/s",
        _LOOK,
        Verdict.FAIL if share < fails else Verdict.WARN,
    )


def _too_high(card: Card, expected: str, found: str, how: str) -> Advised:
    return advised(
        "rate",
        card,
        "sustained matmul",
        expected,
        found,
        f"is too fast to be true under load: {how}, {found}",
        "do not trust its times or its results: work was left out, or its clock is wrong; see the check corruption",
    )
