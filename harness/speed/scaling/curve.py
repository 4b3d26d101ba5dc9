"""Computes a scaling curve from rounds: times, speedups and efficiencies with intervals, and the fitted law.

With r times as many devices as in the smallest set, and serial fraction s:

- Amdahl (1967), the same work: time(r) = time(1) (s + (1 - s) / r).
- Gustafson (1988), r times the work: it does r - s (r - 1) times as much per second, so that
  time(r) = time(1) r / (r - s (r - 1)).

Times scatter by a share of themselves, so their logarithms are fitted.

Each process gives one figure, the median of its calls, so the intervals include the variation between processes. A
speedup is computed round by round, because the processes of a round ran close together: the geometric mean of the
ratios, with the interval of Student's t on their logarithms (``scipy.stats.ttest_1samp``).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace

from harness.plural import plural
from harness.speed.record import Interval
from harness.speed.scaling.record import Mode, Point, ScaleRecord, SerialFraction

#: Confidence of all intervals, two-sided.
_CONFIDENCE = 0.95
#: Both laws have two: the serial fraction and the time on the smallest device set.
_PARAMETERS = 2
#: Bound of the serial fraction: beyond it, no law is worth fitting.
_LARGEST = 1e3
_EDGE = 1e-6


def curve_of(points: Sequence[Point], *, target: str, mode: Mode, rounds: int, complete: bool) -> ScaleRecord:
    """Make the record of the measurements so far; ``rounds`` is the requested number."""
    measured = [point for point in points if point.rounds and point.devices is not None and not point.wrong]
    base = min(measured, key=lambda point: point.devices or 0, default=None)
    worked_out = tuple(_worked_out(point, base, mode) for point in points)
    fit, reason = _fit(measured, mode)
    return ScaleRecord(target, mode, rounds, worked_out, fit, reason, complete, _CONFIDENCE)


def geometric_mean(values: Sequence[float]) -> tuple[float, Interval | None]:
    """Compute the geometric mean and its two-sided interval; ``None`` for a single value."""
    import numpy as np
    from scipy.stats import gmean, ttest_1samp

    mean = float(gmean(values))
    if len(values) < 2:
        return mean, None
    logs = np.log(np.asarray(values, float))
    if np.ptp(logs) == 0.0:
        return mean, Interval(mean, mean, mean, _CONFIDENCE)  # the test divides by the variance
    ends = ttest_1samp(logs, 0.0).confidence_interval(_CONFIDENCE)
    return mean, Interval(mean, math.exp(float(ends.low)), math.exp(float(ends.high)), _CONFIDENCE)


def _worked_out(point: Point, base: Point | None, mode: Mode) -> Point:
    if base is None or not point.rounds or point.devices is None or base.devices is None or point.wrong:
        return point
    time_ns, time_interval = geometric_mean([each.median_ns for each in point.rounds])
    ratio = point.devices / base.devices
    work = ratio if mode == "weak" else 1.0
    at_base = {each.number: each.median_ns for each in base.rounds}
    speedups = [work * at_base[each.number] / each.median_ns for each in point.rounds if each.number in at_base]
    if not speedups:
        return replace(point, time_ns=time_ns, time_interval_ns=time_interval)
    speedup, speedup_interval = geometric_mean(speedups)
    return replace(
        point,
        time_ns=time_ns,
        time_interval_ns=time_interval,
        speedup=speedup,
        speedup_interval=speedup_interval,
        efficiency=speedup / ratio,
    )


def _fit(measured: Sequence[Point], mode: Mode) -> tuple[SerialFraction | None, str | None]:
    kinds = sorted({str(point.kind) for point in measured})
    if len(kinds) > 1:
        return None, f"the devices are of several kinds ({', '.join(kinds)}) with different speeds"
    counts = [point.devices or 0 for point in measured for _ in point.rounds]
    reason = why_no_fit(counts)
    if reason is not None:
        return None, reason
    times = [each.median_ns for point in measured for each in point.rounds]
    return fit_serial_fraction(mode, counts, times), None


def why_no_fit(counts: Sequence[int]) -> str | None:
    """Say why these numbers of devices, one for each time, allow no fit; ``None`` if they do."""
    different = len(set(counts))
    if different == 0:
        return "nothing was measured"
    if different < _PARAMETERS:
        return f"all measurements are on {plural(counts[0], 'device')}; a fit needs two different numbers of devices"
    return None


def fit_serial_fraction(mode: Mode, counts: Sequence[int], times_ns: Sequence[float]) -> SerialFraction:
    """Fit the serial fraction of the law of ``mode``, by least squares of the logarithms of the times.

    ``counts`` has the number of devices of each time. The interval is two-sided, from the covariance of the fit and
    Student's t. Raise ValueError for fewer than two different counts (see :func:`why_no_fit`).
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
        half = float(t.ppf((1.0 + _CONFIDENCE) / 2.0, freedom)) * error
        interval = Interval(serial, serial - half, serial + half, _CONFIDENCE)
    return SerialFraction(
        law="Amdahl" if mode == "strong" else "Gustafson",
        value=serial,
        interval=interval,
        time_ns=math.exp(float(found[1])),
        base_devices=base,
        rounds=len(logs),
        counts=len(set(counts)),
    )


def is_vague(interval: Interval | None) -> bool:
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
