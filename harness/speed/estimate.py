"""The statistics of a speedup. Every estimator is SciPy's.

The speedup is the exponential of the 20 % trimmed mean of ``log(single / parallel)``, pair by pair. A pair runs within
milliseconds, so a slow phase of the machine slows both sides; the logarithm treats twice and half as fast alike. Stalls
by other programs hit one side of a few pairs; trimming removes these outliers. The interval is Tukey and McLaughlin's,
from the winsorized variance (Wilcox, Introduction to Robust Estimation and Hypothesis Testing, 3rd ed. 2012, section
4.3).

The gate compares two figures, as logarithms with their standard errors. **Fastest calls**: the fastest call of
``single`` over the fastest of ``parallel``. Other programs only add time, so the fastest of many calls shows the code
itself (Chen and Revels, Robust benchmarking in noisy environments, 2016). On two cores shared with other machines, it
varied a third to a fifth as much between runs as typical calls. The calls must be spread over some seconds, because
disturbances come and go. Its standard error is bootstrapped from blocks of neighbouring pairs (Künsch 1989, for data
correlated in time). **Typical calls**: the trimmed mean of the pairs. It shows what the fastest calls miss, such as a
stall or a new trace in every second call.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from harness.errors import UsageError
from harness.plural import plural
from harness.speed.record import Interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Share cut off at either end: Wilcox (2012), section 4.3, recommends 20 % for heavy tails.
TRIM = 0.2
#: Fewest pairs that leave three after trimming, so that there is an interval at all.
FEWEST_PAIRS = 5
#: Above this p-value, a correlation between neighbouring pairs counts as chance.
_CHANCE = 0.01
#: Correlations are cut here: the interval is then wide enough.
_LARGEST_CORRELATION = 0.95
#: The figures that the gate compares.
Figure = Literal["fastest", "typical"]
FIGURES: tuple[Figure, ...] = ("fastest", "typical")
#: Blocks of neighbouring pairs from which the error of the fastest calls is bootstrapped.
BLOCKS = 20
_RESAMPLES = 999
#: A smaller standard error only means that the clock is coarse.
_SMALLEST_ERROR = 1e-9


@dataclass(frozen=True, slots=True)
class Correlation:
    """Spearman's correlation of each pair's log ratio with the next one's, and its two-sided p-value."""

    value: float
    p_value: float

    @property
    def widens(self) -> float:
        """The factor by which the interval widens compared with independent pairs.

        With first-order autoregression, ``n`` pairs are worth ``n (1 - r) / (1 + r)`` independent ones (Bayley and
        Hammersley 1946). A negative correlation, or one that may be chance, widens nothing.
        """
        if not (self.p_value < _CHANCE and self.value > 0.0):
            return 1.0
        r = min(self.value, _LARGEST_CORRELATION)
        return math.sqrt((1.0 + r) / (1.0 - r))


def paired_speedup(single_ns: Sequence[float], parallel_ns: Sequence[float], confidence: float = 0.95) -> Interval:
    """Estimate the speedup with its two-sided interval, from times in ns; the i-th times belong to pair i.

    Correlation of neighbouring pairs widens the interval by :attr:`Correlation.widens`. Raise UsageError for fewer than
    5 pairs, sides of different lengths, or a time that is not positive.
    """
    from scipy.stats import trim_mean
    from scipy.stats.mstats import trimmed_mean_ci

    logs = _log_ratios(single_ns, parallel_ns)
    value = float(trim_mean(logs, TRIM))
    lower, upper = (float(end) for end in trimmed_mean_ci(logs, limits=(TRIM, TRIM), alpha=1.0 - confidence))
    half = (upper - lower) / 2.0 * correlation(single_ns, parallel_ns).widens
    return Interval(math.exp(value), math.exp(value - half), math.exp(value + half), confidence)


def unpaired_speedup(single_ns: Sequence[float], parallel_ns: Sequence[float], confidence: float = 0.95) -> Interval:
    """Estimate the speedup as if both sides had been measured in separate runs: Yuen's test on the logarithms.

    It shows the value of pairing: it is wider on a machine whose speed varies. Raise UsageError as for
    :func:`paired_speedup`.
    """
    import numpy as np
    from scipy.stats import trim_mean, ttest_ind

    _log_ratios(single_ns, parallel_ns)
    single, parallel = np.log(np.asarray(single_ns, float)), np.log(np.asarray(parallel_ns, float))
    value = float(trim_mean(single, TRIM) - trim_mean(parallel, TRIM))
    if np.ptp(single) == 0.0 and np.ptp(parallel) == 0.0:
        # Yuen's test divides by the variance.
        return Interval(math.exp(value), math.exp(value), math.exp(value), confidence)
    ends = ttest_ind(single, parallel, equal_var=False, trim=TRIM).confidence_interval(confidence)
    return Interval(math.exp(value), math.exp(float(ends.low)), math.exp(float(ends.high)), confidence)


def correlation(single_ns: Sequence[float], parallel_ns: Sequence[float]) -> Correlation:
    """Correlate the log ratio of each pair with the next one's; 0 if all pairs are the same."""
    import numpy as np
    from scipy.stats import spearmanr

    logs = _log_ratios(single_ns, parallel_ns)
    if np.ptp(logs[:-1]) == 0.0 or np.ptp(logs[1:]) == 0.0:
        return Correlation(0.0, 1.0)
    found = spearmanr(logs[:-1], logs[1:])
    return Correlation(float(found.statistic), float(found.pvalue))


def relative_half_width(interval: Interval) -> float:
    """Compute half the width of the interval as a share of its value: 0.01 is ± 1 %. The wider side counts."""
    return max(interval.upper / interval.value - 1.0, 1.0 - interval.lower / interval.value)


def pairs_needed(interval: Interval, pairs: int, half_width: float) -> int:
    """Estimate the total number of pairs for an interval of this relative half-width, at the present scatter.

    The width is proportional to Student's t over the square root of the number, as in :func:`paired_speedup`.
    """
    from scipy.stats import t

    spread = math.log(interval.upper / interval.lower) / 2.0
    wanted = math.log1p(half_width)
    tail = (1.0 + interval.confidence) / 2.0

    def width(count: int) -> float:
        return float(t.ppf(tail, _kept(count) - 1)) / math.sqrt(count)

    scatter = spread / width(pairs)
    counts = range(FEWEST_PAIRS, 10**12)
    return counts[bisect_left(counts, True, key=lambda count: scatter * width(count) <= wanted)]


def _kept(count: int) -> int:
    """Count the values that trimming leaves."""
    return count - 2 * int(TRIM * count)


def _log_ratios(single_ns: Sequence[float], parallel_ns: Sequence[float]) -> NDArray[np.float64]:
    import numpy as np

    if len(single_ns) != len(parallel_ns) or len(single_ns) < FEWEST_PAIRS:
        raise UsageError(
            f"single_ns has {plural(len(single_ns), 'time')}, parallel_ns {len(parallel_ns):,}; accepted: the same "
            f"number of times in both, at least {FEWEST_PAIRS}"
        )
    single, parallel = np.asarray(single_ns, float), np.asarray(parallel_ns, float)
    if not (np.all(single > 0.0) and np.all(parallel > 0.0)):
        raise UsageError("a time of 0 ns or less was measured; use a finer, monotonic clock")
    logs: NDArray[np.float64] = np.log(single / parallel)
    return logs


@dataclass(frozen=True, slots=True)
class LogSpeedup:
    """The logarithm of a speedup, with its standard error within one run and its degrees of freedom."""

    value: float
    error: float
    pairs: int
    freedom: int


def log_speedup(single_ns: Sequence[float], parallel_ns: Sequence[float], figure: Figure = "fastest") -> LogSpeedup:
    """Compute a figure from times in ns; the i-th times belong to pair i.

    Raise UsageError if the times are not pairs.
    """
    return (_typical if figure == "typical" else _fastest)(tuple(single_ns), tuple(parallel_ns))


# A calibration compares each run with many others.
@lru_cache(maxsize=2048)
def _fastest(single_ns: tuple[float, ...], parallel_ns: tuple[float, ...]) -> LogSpeedup:
    import numpy as np
    from scipy.stats import bootstrap

    _log_ratios(single_ns, parallel_ns)  # refuses times that are not pairs
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
    from scipy.stats.mstats import trimmed_stde

    value = math.log(paired_speedup(single_ns, parallel_ns).value)
    logs = _log_ratios(single_ns, parallel_ns)
    error = float(trimmed_stde(logs, limits=(TRIM, TRIM))) * correlation(single_ns, parallel_ns).widens
    pairs = len(single_ns)
    return LogSpeedup(value, max(error, _SMALLEST_ERROR), pairs, _kept(pairs) - 1)
