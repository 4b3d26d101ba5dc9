"""Warnings about the times of a measurement, a sentence each. A warning changes no figure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from harness.devices.device import Device
from harness.plural import plural
from harness.speed.estimate import FEWEST_PAIRS, correlation, pairs_needed, relative_half_width
from harness.speed.pairs import Samples
from harness.speed.record import Interval

#: Accepted share of a call for waiting for the devices.
_LARGEST_WAIT = 0.10
#: Far beyond any device: a higher rate is a mistake in ``work`` or in waiting. A core: 6 GHz, with four units of 16
#: float32 multiply-adds. The others are round numbers, ten times the fastest of 2026.
_MOST_FLOPS_PER_S = {"CPU": 6e9 * 4 * 16 * 2, "GPU": 1e17}
_MOST_BYTES_PER_S = {"CPU": 1e13, "GPU": 1e14}


def about_times(samples: Samples, speedup: Interval, half_width: float, devices: Sequence[Device]) -> list[str]:
    """Warn of few pairs, a wide interval, no gain, too large a gain, and correlated pairs."""
    found = []
    pairs = len(samples.single_ns)
    width = relative_half_width(speedup)
    if samples.stopped != "precise":
        found.append(
            f"the interval is ± {width:.1%} instead of ± {half_width:.1%} after {pairs:,} pairs; about "
            f"{pairs_needed(speedup, pairs, half_width):,} pairs are needed"
        )
    if pairs < 2 * FEWEST_PAIRS:
        found.append(f"only {pairs} pairs: a call takes {median(samples.single_ns) / 1e6:.0f} ms; raise the budget")
    if len(devices) > 1 and speedup.upper < 1.0:
        found.append(f"slower on {len(devices)} devices than on one: speedup {speedup.value:.2f}")
    if speedup.lower > len(devices):
        found.append(
            f"a speedup of {speedup.value:.2f} exceeds the number of devices ({len(devices)}): single does more "
            "work than "
            "parallel, or is slowed down"
        )
    correlated = correlation(samples.single_ns, samples.parallel_ns)
    if correlated.widens > 1.0:
        found.append(
            f"neighbouring pairs are correlated ({correlated.value:.2f}), so the speed drifts; the interval was "
            "widened "
            f"{correlated.widens:.1f} times"
        )
    return found


def about_traces(traces: int, calls: int) -> list[str]:
    """Warn of functions traced during the measurement (FAULTS S02)."""
    if not traces:
        return []
    return [
        (
            f"functions were traced {plural(traces, 'time')} in {calls:,} measured calls, and the "
            "times include it; make each "
            "tf.function once, outside the call, and pass tensors of the same shape instead of Python numbers"
        )
    ]


def about_waiting(wait_ns: float, samples: Samples) -> list[str]:
    """Warn of calls so short that waiting for the devices dominates."""
    call_ns = min(median(samples.single_ns), median(samples.parallel_ns))
    if wait_ns <= _LARGEST_WAIT * call_ns:
        return []
    return [
        (
            f"a call takes {call_ns / 1e3:,.0f} µs, {wait_ns / 1e3:,.0f} µs of it to wait for its outputs: too "
            "little work "
            "per call to show a speedup"
        )
    ]


def about_rates(
    flops_per_s: float | None, bytes_per_s: float | None, device: Device, count: int, side: str
) -> list[str]:
    """Warn of rates that ``count`` such devices cannot reach: ``work`` is wrong, or not waited for (FAULTS S03)."""
    kind = device.parsed.kind or ""
    return [
        f"{side} does {rate:.2g} {unit}, more than {plural(count, kind)} can: work= is too large, or the call skips "
        "work that "
        "no output needs"
        for rate, unit, most in (
            (flops_per_s, "FLOP/s", _MOST_FLOPS_PER_S),
            (bytes_per_s, "bytes/s", _MOST_BYTES_PER_S),
        )
        if rate is not None and kind in most and rate > count * most[kind]
    ]
