"""Times the calls of a program in one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from harness._tensorflow import count_traces
from harness.speed.measure import quiet
from harness.speed.settle import settle, warm_up

#: A median of fewer calls is not reliable.
FEWEST_CALLS = 5
_MOST_CALLS = 10_000


def time_calls(
    program: Callable[[], Any], *, budget_s: float, clock: Callable[[], int] = time.perf_counter_ns
) -> tuple[int, ...]:
    """Warm ``program`` up, call it for about ``budget_s`` seconds, at least five times, and give each time in ns.

    A time ends when all devices are done and each output can be read. ``clock`` is monotonic, in ns.
    """
    with count_traces() as traces, quiet() as collect:
        warm_up(traces, program)
        times: list[int] = []
        start = clock()
        while len(times) < FEWEST_CALLS or (len(times) < _MOST_CALLS and clock() - start < budget_s * 1e9):
            begin = clock()
            settle(program())
            times.append(clock() - begin)
            collect()
    return tuple(times)
