"""What is suspicious about the times themselves, a sentence each. A warning changes no figure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from harness.devices.device import Device
from harness.speed.estimate import FEWEST_PAIRS, correlation, pairs_needed, relative_half_width
from harness.speed.pairs import Samples
from harness.speed.record import Interval

#: Waiting for the devices may take this share of a call; beyond it, that is what is measured.
_LARGEST_WAIT = 0.10
#: Far more than any device can do, so that a rate above it is a mistake in ``work`` or in waiting. A core: 6 GHz, with
#: four units of 16 float32 multiply-adds. The others are round numbers, ten times what is fast in 2026.
_MOST_FLOPS_PER_S = {"CPU": 6e9 * 4 * 16 * 2, "GPU": 1e17}
_MOST_BYTES_PER_S = {"CPU": 1e13, "GPU": 1e14}


def about_times(samples: Samples, speedup: Interval, half_width: float, devices: Sequence[Device]) -> list[str]:
    """Too few pairs, too wide an interval, no gain, too much of it, or pairs that hang together."""
    found = []
    pairs = len(samples.single_ns)
    width = relative_half_width(speedup)
    if samples.stopped != "precise":
        found.append(
            f"the interval is ± {width:.1%} wide instead of ± {half_width:.1%} after {pairs} pairs; "
            f"about {pairs_needed(speedup, pairs, half_width)} pairs are needed for that"
        )
    if pairs < 2 * FEWEST_PAIRS:
        found.append(f"{pairs} pairs are few: a call takes {median(samples.single_ns) / 1e6:.0f} ms; raise the budget")
    if len(devices) > 1 and speedup.upper < 1.0:
        found.append(f"slower on {len(devices)} devices than on one: {speedup.value:.2f} times as fast")
    if speedup.lower > len(devices):
        found.append(
            f"{speedup.value:.2f} times as fast on {len(devices)} device(s) is more than there are: single does more "
            "work than parallel, or is held back"
        )
    hangs_together = correlation(samples.single_ns, samples.parallel_ns)
    if hangs_together.widens > 1.0:
        found.append(
            f"neighbouring pairs are correlated ({hangs_together.value:.2f}): something changes slowly meanwhile; "
            f"the interval is {hangs_together.widens:.1f} times as wide for it"
        )
    return found


def about_traces(traces: int, calls: int) -> list[str]:
    """Functions traced inside the times (FAULTS S02)."""
    if not traces:
        return []
    return [
        (
            f"a function was traced {traces} time(s) in {calls} measured calls: tracing is in the times; make a "
            "tf.function once, outside of the call, and give it tensors of the same shape instead of Python numbers"
        )
    ]


def about_waiting(wait_ns: float, samples: Samples) -> list[str]:
    """Calls so short that waiting for the devices is much of them."""
    call_ns = min(median(samples.single_ns), median(samples.parallel_ns))
    if wait_ns <= _LARGEST_WAIT * call_ns:
        return []
    return [
        (
            f"a call takes {call_ns / 1e3:.0f} µs, and waiting for its outputs alone {wait_ns / 1e3:.0f} µs of that: "
            "too little work per call to see a speedup"
        )
    ]


def about_rates(
    flops_per_s: float | None, bytes_per_s: float | None, device: Device, count: int, side: str
) -> list[str]:
    """Rates that ``count`` such devices cannot reach: work is stated wrongly, or not waited for (FAULTS S03)."""
    kind = device.parsed.kind or ""
    return [
        f"{side} does {rate:.2g} {unit}, more than {count} {kind}(s) can: work= is stated too large, or the call "
        "leaves work undone that none of its outputs needs"
        for rate, unit, most in (
            (flops_per_s, "FLOP/s", _MOST_FLOPS_PER_S),
            (bytes_per_s, "bytes/s", _MOST_BYTES_PER_S),
        )
        if rate is not None and kind in most and rate > count * most[kind]
    ]
