"""The two figures that the gate compares, as logarithms with their standard errors.

**Fastest calls**: the fastest call of ``single`` over the fastest of ``parallel``. Whatever else runs on a machine
only adds time, so that the fastest of many calls is what the code itself takes (Chen and Revels, Robust benchmarking in
noisy environments, 2016). On two cores shared with other machines it moved a third to a fifth as much from run to run
as typical calls did. It holds where the calls are spread over some seconds: neighbours come and go. Its standard error
is bootstrapped by ``scipy.stats.bootstrap`` from blocks of neighbouring pairs (as Künsch 1989 does for what is
correlated in time), so that it is small where several stretches of the run agree on the fastest time.

**Typical calls**: the trimmed mean of the pairs, which :func:`harness.speed.estimate.paired_speedup` gives. It sees
what the fastest calls do not: a stall or a new trace in every second call.
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
#: Below this, a standard error says that the clock is coarse, not that anything is certain.
_SMALLEST_ERROR = 1e-9


@dataclass(frozen=True, slots=True)
class LogSpeedup:
    """The logarithm of a speedup with its standard error within one run, and its degrees of freedom."""

    value: float
    error: float
    pairs: int
    freedom: int


def log_speedup(single_ns: Sequence[float], parallel_ns: Sequence[float], figure: Figure = "fastest") -> LogSpeedup:
    """The figure from times in ns, of which the i-th belong to pair i.

    Raises:
        UsageError: these times are no pairs to judge.
    """
    return (_typical if figure == "typical" else _fastest)(tuple(single_ns), tuple(parallel_ns))


# Each run is compared with many others where a machine is calibrated.
@lru_cache(maxsize=2048)
def _fastest(single_ns: tuple[float, ...], parallel_ns: tuple[float, ...]) -> LogSpeedup:
    import numpy as np
    from scipy.stats import bootstrap

    paired_speedup(single_ns, parallel_ns)  # refuses what are no pairs
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
        random_state=np.random.default_rng(0),  # the same times always come to the same verdict
    )
    value = math.log(float(single.min()) / float(parallel.min()))
    return LogSpeedup(value, max(float(found.standard_error), _SMALLEST_ERROR), pairs, blocks - 1)


@lru_cache(maxsize=2048)
def _typical(single_ns: tuple[float, ...], parallel_ns: tuple[float, ...]) -> LogSpeedup:
    """The error is a trimmed mean's, from the winsorized variance, and as much larger as correlated pairs make it."""
    import numpy as np
    from scipy.stats.mstats import trimmed_stde

    value = math.log(paired_speedup(single_ns, parallel_ns).value)
    logs = np.log(np.asarray(single_ns, float) / np.asarray(parallel_ns, float))
    error = float(trimmed_stde(logs, limits=(TRIM, TRIM))) * correlation(single_ns, parallel_ns).widens
    pairs = len(single_ns)
    return LogSpeedup(value, max(error, _SMALLEST_ERROR), pairs, pairs - 2 * int(TRIM * pairs) - 1)
