"""Computes a scaling curve from rounds: times, speedups and efficiencies with intervals, and the fitted law.

Each process gives one figure, the median of its calls, so the intervals include the variation between processes. A
speedup is computed round by round, because the processes of a round ran close together: the geometric mean of the
ratios, with the interval of Student's t on their logarithms (``scipy.stats.ttest_1samp``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from harness.speed.record import Interval
from harness.speed.scaling.laws import fit_serial_fraction, why_no_fit
from harness.speed.scaling.record import Mode, Point, ScaleRecord, SerialFraction


def curve_of(
    points: Sequence[Point], *, target: str, mode: Mode, rounds: int, complete: bool, confidence: float = 0.95
) -> ScaleRecord:
    """Make the record of the measurements so far; ``rounds`` is the requested number."""
    measured = [point for point in points if point.rounds and point.devices is not None and not point.wrong]
    base = min(measured, key=lambda point: point.devices or 0, default=None)
    worked_out = tuple(_worked_out(point, base, mode, confidence) for point in points)
    fit, reason = _fit(measured, mode, confidence)
    return ScaleRecord(
        target=target,
        mode=mode,
        rounds=rounds,
        points=worked_out,
        fit=fit,
        why_no_fit=reason,
        complete=complete,
        confidence=confidence,
    )


def geometric_mean(values: Sequence[float], confidence: float = 0.95) -> tuple[float, Interval | None]:
    """Compute the geometric mean and its two-sided interval; ``None`` for a single value."""
    import numpy as np
    from scipy.stats import gmean, ttest_1samp

    mean = float(gmean(values))
    if len(values) < 2:
        return mean, None
    logs = np.log(np.asarray(values, float))
    if np.ptp(logs) == 0.0:
        return mean, Interval(mean, mean, mean, confidence)  # the test divides by the variance
    ends = ttest_1samp(logs, 0.0).confidence_interval(confidence)
    return mean, Interval(mean, math.exp(float(ends.low)), math.exp(float(ends.high)), confidence)


def _worked_out(point: Point, base: Point | None, mode: Mode, confidence: float) -> Point:
    if base is None or not point.rounds or point.devices is None or base.devices is None or point.wrong:
        return point
    time_ns, time_interval = geometric_mean([each.median_ns for each in point.rounds], confidence)
    ratio = point.devices / base.devices
    work = ratio if mode == "weak" else 1.0
    at_base = {each.number: each.median_ns for each in base.rounds}
    speedups = [work * at_base[each.number] / each.median_ns for each in point.rounds if each.number in at_base]
    if not speedups:
        return replace(point, time_ns=time_ns, time_interval_ns=time_interval)
    speedup, speedup_interval = geometric_mean(speedups, confidence)
    return replace(
        point,
        time_ns=time_ns,
        time_interval_ns=time_interval,
        speedup=speedup,
        speedup_interval=speedup_interval,
        efficiency=speedup / ratio,
    )


def _fit(measured: Sequence[Point], mode: Mode, confidence: float) -> tuple[SerialFraction | None, str | None]:
    kinds = sorted({str(point.kind) for point in measured})
    if len(kinds) > 1:
        return None, f"the devices are of several kinds ({', '.join(kinds)}) with different speeds"
    counts = [point.devices or 0 for point in measured for _ in point.rounds]
    reason = why_no_fit(counts)
    if reason is not None:
        return None, reason
    times = [each.median_ns for point in measured for each in point.rounds]
    return fit_serial_fraction(mode, counts, times, confidence), None
