"""Amdahl's and Gustafson's laws, fitted to measured times by SciPy's ``curve_fit``.

With r times as many devices as in the smallest set, and serial fraction s:

- Amdahl (1967), the same work: time(r) = time(1) (s + (1 - s) / r).
- Gustafson (1988), r times the work: it does r - s (r - 1) times as much per second, so that
  time(r) = time(1) r / (r - s (r - 1)).

Times scatter by a share of themselves, so their logarithms are fitted.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

from harness.plural import plural
from harness.speed.record import Interval
from harness.speed.scaling.record import Mode, SerialFraction

#: Both laws have two: the serial fraction and the time on the smallest device set.
_PARAMETERS = 2
#: Bound of the serial fraction: beyond it, no law is worth fitting.
_LARGEST = 1e3
_EDGE = 1e-6


def why_no_fit(counts: Sequence[int]) -> str | None:
    """Say why these numbers of devices, one for each time, allow no fit; ``None`` if they do."""
    different = len(set(counts))
    if different == 0:
        return "nothing was measured"
    if different < _PARAMETERS:
        return f"all measurements are on {plural(counts[0], 'device')}; a fit needs two different numbers of devices"
    return None


def fit_serial_fraction(
    mode: Mode, counts: Sequence[int], times_ns: Sequence[float], confidence: float = 0.95
) -> SerialFraction:
    """Fit the serial fraction of the law of ``mode``, by least squares of the logarithms of the times.

    Args:
        mode: ``strong`` for Amdahl's law, ``weak`` for Gustafson's.
        counts: number of devices of each time.
        times_ns: one time for each, in ns.
        confidence: of the two-sided interval, from the covariance of the fit and Student's t.

    Raises:
        ValueError: fewer than two different counts (see :func:`why_no_fit`).
    """
    import numpy as np
    from scipy.optimize import OptimizeWarning, curve_fit
    from scipy.stats import t

    reason = why_no_fit(counts)
    if reason is not None:
        raise ValueError(reason)
    base = min(counts)
    ratios = np.asarray(counts, float) / base
    logs = np.log(np.asarray(times_ns, float))
    largest = float(ratios.max())

    def amdahl(ratio: object, serial: float, log_time: float) -> object:
        return log_time + np.log(serial + (1.0 - serial) / np.asarray(ratio))

    def gustafson(ratio: object, serial: float, log_time: float) -> object:
        r = np.asarray(ratio)
        return log_time + np.log(r / (r - serial * (r - 1.0)))

    # What is inside the logarithm has to stay above 0 for the largest ratio.
    if mode == "strong":
        law, bounds = amdahl, (-1.0 / (largest - 1.0) + _EDGE, _LARGEST)
    else:
        law, bounds = gustafson, (-_LARGEST, largest / (largest - 1.0) - _EDGE)
    start = (0.05, float(np.mean(logs[ratios == 1.0])))
    with warnings.catch_warnings():
        # With as many times as parameters there is no covariance, and no interval.
        warnings.simplefilter("ignore", OptimizeWarning)
        found, covariance = curve_fit(
            law, ratios, logs, p0=start, bounds=((bounds[0], -np.inf), (bounds[1], np.inf)), xtol=1e-12, ftol=1e-12
        )
    serial = float(found[0])
    error = math.sqrt(float(covariance[0, 0])) if covariance[0, 0] >= 0.0 else math.inf
    freedom = len(logs) - _PARAMETERS
    interval = None
    if freedom > 0 and math.isfinite(error):
        half = float(t.ppf((1.0 + confidence) / 2.0, freedom)) * error
        interval = Interval(serial, serial - half, serial + half, confidence)
    return SerialFraction(
        law="Amdahl" if mode == "strong" else "Gustafson",
        value=serial,
        interval=interval,
        time_ns=math.exp(float(found[1])),
        base_devices=base,
        rounds=len(logs),
        counts=len(set(counts)),
    )


def says_nothing(interval: Interval | None) -> bool:
    """Whether an interval of a speedup tells no gain from a loss: it holds 1 and is wider than 10 % to either side."""
    return interval is not None and interval.lower < 1.0 < interval.upper and interval.upper - interval.lower > 0.2


def fits_any_program(fit: SerialFraction) -> bool:
    """Whether the interval of a serial fraction holds 0, which is all parallel, and 1, which is all serial."""
    return fit.interval is not None and fit.interval.lower <= 0.0 and fit.interval.upper >= 1.0


def speedup_by(fit: SerialFraction, ratio: float) -> float:
    """Give the factor of work per second that the law predicts for ``ratio`` times as many devices."""
    if fit.law == "Amdahl":
        return 1.0 / (fit.value + (1.0 - fit.value) / ratio)
    return ratio - fit.value * (ratio - 1.0)
