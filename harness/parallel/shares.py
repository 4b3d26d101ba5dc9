"""How many rows each device gets where they differ: by shares that are given, or measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import Any

from harness._tensorflow import interface
from harness.errors import ShardingError
from harness.lazy import tf

#: Shares are ratios of integers up to this one.
_FINEST = 1000
#: Timed runs on each device, of which the fastest counts: other work only makes a run slower.
_RUNS = 3
#: Measured shares are rounded to this part of an equal share. Times on a busy machine are no more precise.
_STEPS = 20


def given_shares(shares: object, count: int) -> tuple[int, ...]:
    """Return shares of ``count`` devices as integers without a common factor.

    Raises:
        ShardingError: they are no sequence of one positive number for each device.
    """
    accepted = f"'auto', or {count} positive numbers, one for each device; none is over {_FINEST:,} times another"
    listed = list(shares) if isinstance(shares, Sequence) and not isinstance(shares, (str, bytes)) else []
    numbers = [each for each in listed if isinstance(each, (int, float)) and not isinstance(each, bool)]
    usable = len(numbers) == len(listed) == count and all(math.isfinite(each) and each > 0 for each in numbers)
    if not usable or max(numbers) > _FINEST * min(numbers):
        raise ShardingError(f"shares={shares!r}; accepted: {accepted}")
    least = min(numbers)
    ratios = [Fraction(each / least).limit_denominator(_FINEST) for each in numbers]
    common = math.lcm(*(each.denominator for each in ratios))
    return tuple(int(each * common) for each in ratios)


def measured_shares(rate: Callable[[int], Callable[[], Any]], count: int) -> tuple[int, ...]:
    """Measure the shares of ``count`` devices. ``rate(i)`` is a run of the same work on each device.

    Raises:
        ShardingError: it is called while a graph is built, where nothing can be timed.
    """
    if not tf.executing_eagerly():
        raise ShardingError(
            "shares='auto': the first call is in a tf.function, where nothing can be measured; call it once in eager "
            "code first, or give the shares"
        )
    return shares_of([_seconds(rate(index)) for index in range(count)])


def shares_of(seconds: Sequence[float]) -> tuple[int, ...]:
    """Return the shares of devices that take these times for the same work; each gets something."""
    rates = [1 / each for each in seconds]
    equal = sum(rates) / len(rates)
    rounded = [max(1, round(_STEPS * each / equal)) for each in rates]
    divisor = math.gcd(*rounded)
    return tuple(each // divisor for each in rounded)


def _seconds(run: Callable[[], Any]) -> float:
    taken = []
    for _ in range(_RUNS + 1):
        begin = time.perf_counter()
        results = run()
        tf.test.experimental.sync_devices()
        del results
        taken.append(time.perf_counter() - begin)
    return max(min(taken[1:]), 1e-9)


def without_tape() -> AbstractContextManager[None]:
    """Record what the body runs on no tape."""
    stopped: AbstractContextManager[None] = interface().record.stop_recording()
    return stopped
