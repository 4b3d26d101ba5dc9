"""Times the calls of a program in one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from harness._tensorflow import count_traces
from harness.speed.measure import quiet
from harness.speed.settle import settle

#: Called at least so often before anything is measured, and at most until nothing is traced any more.
_WARM_UP = 3
_MOST_WARM_UP = 8
#: A median of fewer calls says little, however long they take.
FEWEST_CALLS = 5
_MOST_CALLS = 10_000


def time_calls(
    program: Callable[[], Any], *, budget_s: float, clock: Callable[[], int] = time.perf_counter_ns
) -> tuple[int, ...]:
    """Warm ``program`` up, then call it for about ``budget_s`` seconds, five times at least; the time of each, in ns.

    A time ends when all devices are done and each output can be read. ``clock`` gives ns, and never goes back.
    """
    with count_traces() as traces, quiet() as collect:
        for done in range(1, _MOST_WARM_UP + 1):
            before = traces.times
            settle(program())
            if traces.times == before and done >= _WARM_UP - 1:
                break
        times: list[int] = []
        start = clock()
        while len(times) < FEWEST_CALLS or (len(times) < _MOST_CALLS and clock() - start < budget_s * 1e9):
            begin = clock()
            settle(program())
            times.append(clock() - begin)
            collect()
    return tuple(times)
