"""The statistics of a speedup. Every estimator is SciPy's.

The speedup is how many times as fast the parallel side is: the exponential of the 20 % trimmed mean of
``log(single / parallel)``, pair by pair. A pair runs within milliseconds, so that what slows the machine down slows
both of its sides, and the logarithm makes twice as fast and half as fast equally far from no change. Stalls by other
programs hit one side of a few pairs: they are the outliers that trimming takes away, while the trimmed mean loses
little where there are none. Its interval is Tukey and McLaughlin's, from the winsorized variance (Wilcox, Introduction
to Robust Estimation and Hypothesis Testing, 3rd ed. 2012, section 4.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.speed.record import Interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Share cut off at either end: Wilcox (2012), section 4.3, recommends 20 % for heavy tails.
TRIM = 0.2
#: Fewest pairs that leave three after trimming, so that there is an interval at all.
FEWEST_PAIRS = 5
#: Above this probability under independence, a correlation between neighbouring pairs is taken for chance.
_CHANCE = 0.01
#: Beyond this, a correlation is cut: the pairs then tell so little that the interval is wide enough to say so.
_LARGEST_CORRELATION = 0.95


@dataclass(frozen=True, slots=True)
class Correlation:
    """Spearman's correlation of each pair's log ratio with the next one's, and its two-sided p-value."""

    value: float
    p_value: float

    @property
    def widens(self) -> float:
        """How many times as wide as for independent pairs the interval has to be.

        Of pairs that follow an autoregression of first order, ``n`` tell as much as ``n (1 - r) / (1 + r)``
        independent ones (Bayley and Hammersley 1946). A correlation that may be chance, or is negative, widens nothing.
        """
        if not (self.p_value < _CHANCE and self.value > 0.0):
            return 1.0
        r = min(self.value, _LARGEST_CORRELATION)
        return math.sqrt((1.0 + r) / (1.0 - r))


def paired_speedup(single_ns: Sequence[float], parallel_ns: Sequence[float], confidence: float = 0.95) -> Interval:
    """The speedup with its two-sided interval, from times in ns of which the i-th belong to pair i.

    Where neighbouring pairs are correlated, the interval is as much wider as :attr:`Correlation.widens` says.

    Raises:
        UsageError: fewer than 5 pairs, sides of different lengths, or a time that is not positive.
    """
    from scipy.stats import trim_mean
    from scipy.stats.mstats import trimmed_mean_ci

    logs = _log_ratios(single_ns, parallel_ns)
    value = float(trim_mean(logs, TRIM))
    lower, upper = (float(end) for end in trimmed_mean_ci(logs, limits=(TRIM, TRIM), alpha=1.0 - confidence))
    half = (upper - lower) / 2.0 * correlation(single_ns, parallel_ns).widens
    return Interval(math.exp(value), math.exp(value - half), math.exp(value + half), confidence)


def unpaired_speedup(single_ns: Sequence[float], parallel_ns: Sequence[float], confidence: float = 0.95) -> Interval:
    """The same from the same times as if they had been measured in two runs: Yuen's test on the logarithms.

    It shows what pairing is worth: on a machine whose speed wanders it is wider, and it is right only where the
    machine was the same for both sides.

    Raises:
        UsageError: as for :func:`paired_speedup`.
    """
    import numpy as np
    from scipy.stats import trim_mean, ttest_ind

    _log_ratios(single_ns, parallel_ns)
    single, parallel = np.log(np.asarray(single_ns, float)), np.log(np.asarray(parallel_ns, float))
    value = float(trim_mean(single, TRIM) - trim_mean(parallel, TRIM))
    if np.ptp(single) == 0.0 and np.ptp(parallel) == 0.0:
        # Yuen's test divides by the variance; without any, there is nothing to be uncertain of.
        return Interval(math.exp(value), math.exp(value), math.exp(value), confidence)
    ends = ttest_ind(single, parallel, equal_var=False, trim=TRIM).confidence_interval(confidence)
    return Interval(math.exp(value), math.exp(float(ends.low)), math.exp(float(ends.high)), confidence)


def correlation(single_ns: Sequence[float], parallel_ns: Sequence[float]) -> Correlation:
    """How much the log ratio of a pair says of the next one's; of pairs that are all the same it is 0."""
    import numpy as np
    from scipy.stats import spearmanr

    logs = _log_ratios(single_ns, parallel_ns)
    if np.ptp(logs[:-1]) == 0.0 or np.ptp(logs[1:]) == 0.0:
        return Correlation(0.0, 1.0)
    found = spearmanr(logs[:-1], logs[1:])
    return Correlation(float(found.statistic), float(found.pvalue))


def relative_half_width(interval: Interval) -> float:
    """Half the width of the interval as a share of its value: 0.01 is ± 1 %. The wider side counts."""
    return max(interval.upper / interval.value - 1.0, 1.0 - interval.lower / interval.value)


def pairs_needed(interval: Interval, pairs: int, half_width: float) -> int:
    """How many pairs in all would give an interval of this relative half-width, at the scatter seen so far.

    The width goes with Student's t over the square root of the number, as in :func:`paired_speedup`.
    """
    from scipy.stats import t

    spread = math.log(interval.upper / interval.lower) / 2.0
    wanted = math.log1p(half_width)
    tail = (1.0 + interval.confidence) / 2.0

    def width(count: int) -> float:
        return float(t.ppf(tail, _kept(count) - 1)) / math.sqrt(count)

    scatter = spread / width(pairs)
    low, high = FEWEST_PAIRS, FEWEST_PAIRS
    while scatter * width(high) > wanted:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if scatter * width(middle) > wanted else (low, middle)
    return high


def efficiency(speedup: float, devices: int) -> float:
    """The share of the devices that is put to use: speedup / devices."""
    return speedup / devices


def _kept(count: int) -> int:
    """How many of so many values trimming leaves."""
    return count - 2 * int(TRIM * count)


def _log_ratios(single_ns: Sequence[float], parallel_ns: Sequence[float]) -> NDArray[np.float64]:
    import numpy as np

    if len(single_ns) != len(parallel_ns) or len(single_ns) < FEWEST_PAIRS:
        raise UsageError(
            f"{len(single_ns)} and {len(parallel_ns)} times are no pairs to judge; accepted: as many of one side as of "
            f"the other, and at least {FEWEST_PAIRS}; measure longer"
        )
    single, parallel = np.asarray(single_ns, float), np.asarray(parallel_ns, float)
    if not (np.all(single > 0.0) and np.all(parallel > 0.0)):
        raise UsageError("a time of 0 ns or less was measured; use a clock that is finer and never goes back")
    logs: NDArray[np.float64] = np.log(single / parallel)
    return logs
