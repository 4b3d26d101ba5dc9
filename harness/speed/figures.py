"""The two figures that the gate compares, as logarithms with their standard errors.

**Fastest calls**: the fastest call of ``single`` over the fastest of ``parallel``. Other programs only add time, so the
fastest of many calls shows the code itself (Chen and Revels, Robust benchmarking in noisy environments, 2016). On two
cores shared with other machines, it varied a third to a fifth as much between runs as typical calls. The calls must be
spread over some seconds, because disturbances come and go. Its standard error is bootstrapped by
``scipy.stats.bootstrap`` from blocks of neighbouring pairs (Künsch 1989, for data correlated in time).

**Typical calls**: the trimmed mean of the pairs, from :func:`harness.speed.estimate.paired_speedup`. It shows what the
fastest calls miss, such as a stall or a new trace in every second call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from harness.speed.estimate import TRIM, correlation, paired_speedup

Figure = Literal["fastest", "typical"]
FIGURES: tuple[Figure, ...] = ("fastest", "typical")

#: Blocks of neighbouring pairs from which the error of the fastest calls is bootstrapped.
BLOCKS = 20
_RESAMPLES = 999
#: A smaller standard error only means that the clock is coarse.
_SMALLEST_ERROR = 1e-9


@dataclass(frozen=True, slots=True)
class LogSpeedup:
    """The logarithm of a speedup, with its standard error within one run and its degrees of freedom."""

    value: float
    error: float
    pairs: int
    freedom: int


def log_speedup(single_ns: Sequence[float], parallel_ns: Sequence[float], figure: Figure = "fastest") -> LogSpeedup:
    """Compute a figure from times in ns; the i-th times belong to pair i.

    Raises:
        UsageError: the times are not pairs.
    """
    return (_typical if figure == "typical" else _fastest)(tuple(single_ns), tuple(parallel_ns))


# A calibration compares each run with many others.
@lru_cache(maxsize=2048)
def _fastest(single_ns: tuple[float, ...], parallel_ns: tuple[float, ...]) -> LogSpeedup:
    import numpy as np
    from scipy.stats import bootstrap

    paired_speedup(single_ns, parallel_ns)  # refuses times that are not pairs
    pairs = len(single_ns)
    blocks = min(BLOCKS, pairs)
    single, parallel = (
        np.array([part.min() for part in np.array_split(np.asarray(times, float), blocks)])
        for times in (single_ns, parallel_ns)
    )

    def of_blocks(single: object, parallel: object, axis: int = -1) -> object:
        return np.log(np.min(single, axis=axis) / np.min(parallel, axis=axis))  # type: ignore[call-overload]

    found = bootstrap(
        (single, parallel),
        of_blocks,
        paired=True,
        vectorized=True,
        n_resamples=_RESAMPLES,
        method="percentile",
        random_state=np.random.default_rng(0),  # the same times always get the same verdict
    )
    value = math.log(float(single.min()) / float(parallel.min()))
    return LogSpeedup(value, max(float(found.standard_error), _SMALLEST_ERROR), pairs, blocks - 1)


@lru_cache(maxsize=2048)
def _typical(single_ns: tuple[float, ...], parallel_ns: tuple[float, ...]) -> LogSpeedup:
    """Compute the trimmed mean. Its error is from the winsorized variance, widened for correlated pairs."""
    import numpy as np
    from scipy.stats.mstats import trimmed_stde

    value = math.log(paired_speedup(single_ns, parallel_ns).value)
    logs = np.log(np.asarray(single_ns, float) / np.asarray(parallel_ns, float))
    error = float(trimmed_stde(logs, limits=(TRIM, TRIM))) * correlation(single_ns, parallel_ns).widens
    pairs = len(single_ns)
    return LogSpeedup(value, max(error, _SMALLEST_ERROR), pairs, pairs - 2 * int(TRIM * pairs) - 1)
