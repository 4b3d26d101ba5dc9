"""``harness.measure_speedup``: the speedup of a program on several devices over one of them."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from harness._tensorflow import count_traces
from harness.devices.device import Device
from harness.errors import UsageError
from harness.extras import require
from harness.speed.estimate import correlation, paired_speedup, relative_half_width, unpaired_speedup
from harness.speed.label import kind_of, speed_label
from harness.speed.memory.watch import MemoryWatch
from harness.speed.outputs import arrays_of, compare_outputs, same_nest
from harness.speed.pairs import Samples, run_pairs
from harness.speed.record import DeviceMemory, Interval, SpeedupRecord, Work, rate_per_s
from harness.speed.suspicions import about_rates, about_times, about_traces, about_waiting, trace_both
from harness.speed.synchronise import synchronise, warm_up

Program = Callable[[], Any]

#: How often the wait for finished outputs is timed.
_WAITS = 9
#: The garbage collector runs between pairs, at most this often.
_COLLECT_EVERY_NS = 500_000_000


@dataclass(frozen=True, slots=True)
class Measured:
    """The samples of one measurement, and observations beside them."""

    samples: Samples
    #: Functions traced during the measurement, by either side.
    traces: int
    #: Median time to wait for finished outputs, in ns.
    wait_ns: float
    memory: tuple[DeviceMemory, ...]
    #: Outputs that could not be compared, a sentence each.
    doubts: tuple[str, ...]


def measure_speedup(
    single: Program,
    parallel: Program,
    *,
    devices: Sequence[Device],
    work: Work | None = None,
    budget_s: float = 10.0,
    half_width: float = 0.01,
    confidence: float = 0.95,
    seed: int = 0,
    tolerance: float | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> SpeedupRecord:
    """Measure the speedup of ``parallel`` over ``single``, pair by pair.

    Both are warmed up, and then called in turn, in random order within each pair. A time ends when all devices are done
    and each output can be read. Garbage is only collected between pairs. Afterwards each is traced once, for the
    transfers and the warnings.

    Args:
        single: callable without arguments: the program on one device, where it must run serially.
        parallel: callable without arguments: the same on ``devices``.
        devices: the devices that ``parallel`` uses.
        work: the work of one call of either side, for rates.
        budget_s: seconds for measuring pairs, without warming up and tracing.
        half_width: relative half-width of the interval at which measuring ends: 0.01 is ± 1 %.
        confidence: of the two-sided interval.
        seed: of the order within the pairs.
        tolerance: largest difference of an output's elements, relative to their magnitude plus the root mean square of
            the tensor; by default the square root of the dtype's epsilon. Both sides return any nest of tensors. The
            first calls are compared, and the last ones if ``single`` always returns the same.
        clock: monotonic, in ns.

    Examples:
        >>> parallel = harness.make_parallel(model, devices)
        >>> found = harness.measure_speedup(lambda: model(x), lambda: parallel(x), devices=devices, budget_s=1)
        >>> print(found.speedup.value, found.warnings)

    Raises:
        UsageError: an argument is not usable.
        OutputsDiffer: the two compute different results.
        Exception: what either program raises, unchanged.
    """
    devices = tuple(devices)
    _check(single, parallel, devices, budget_s, half_width, confidence)
    measured = measure_pairs(
        single,
        parallel,
        devices=devices,
        budget_s=budget_s,
        half_width=half_width,
        confidence=confidence,
        seed=seed,
        tolerance=tolerance,
        clock=clock,
    )
    samples = measured.samples
    speedup = paired_speedup(samples.single_ns, samples.parallel_ns, confidence)
    unpaired = unpaired_speedup(samples.single_ns, samples.parallel_ns, confidence)
    label = speed_label(devices)
    traced = trace_both(single, parallel, devices)
    flops, moved_bytes = (work.flops, work.moved_bytes) if work is not None else (None, None)
    times = (samples.single_ns, samples.parallel_ns)
    single_flops, parallel_flops = (rate_per_s(flops, times_ns) for times_ns in times)
    single_bytes, parallel_bytes = (rate_per_s(moved_bytes, times_ns) for times_ns in times)
    warnings = (
        *about_traces(measured.traces, 2 * len(samples.single_ns)),
        *about_waiting(measured.wait_ns, samples),
        *about_rates(single_flops, single_bytes, devices[0], 1, "single"),
        *about_rates(parallel_flops, parallel_bytes, devices[0], len(devices), "parallel"),
        *traced.warnings,
        *about_times(samples, speedup, half_width, devices),
        *measured.doubts,
    )
    return SpeedupRecord(
        devices=tuple(device.name for device in devices),
        kind=kind_of(devices),
        label=label.text,
        gates=label.gates,
        speedup=speedup,
        efficiency=speedup.value / len(devices),
        single_ns=samples.single_ns,
        parallel_ns=samples.parallel_ns,
        stopped=samples.stopped,
        wanted_half_width=half_width,
        budget_s=budget_s,
        elapsed_s=samples.elapsed_s,
        flops=flops,
        moved_bytes=moved_bytes,
        single_flops_per_s=single_flops,
        parallel_flops_per_s=parallel_flops,
        single_bytes_per_s=single_bytes,
        parallel_bytes_per_s=parallel_bytes,
        memory=measured.memory,
        transfers=traced.transfers,
        transferred_bytes=traced.transferred_bytes,
        warnings=warnings,
        measured={
            "unpaired_lower": unpaired.lower,
            "unpaired_upper": unpaired.upper,
            "unpaired_half_width": relative_half_width(unpaired),
            "paired_half_width": relative_half_width(speedup),
            "correlation": correlation(samples.single_ns, samples.parallel_ns).value,
            "wait_ns": measured.wait_ns,
        },
    )


def measure_pairs(
    single: Program,
    parallel: Program,
    *,
    devices: Sequence[Device],
    budget_s: float,
    half_width: float,
    confidence: float = 0.95,
    seed: int = 0,
    tolerance: float | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
    compared: bool = False,
) -> Measured:
    """Warm both sides up, compare their outputs, and time them. The arguments are :func:`measure_speedup`'s.

    ``compared``: both were compared before, and one may have been called more often since (a training step is then
    further on), so only programs without state are compared again.
    """
    require("scipy")
    first_single, first_parallel = first_outputs(single, parallel)
    doubts = [] if compared else compare_outputs(first_single, first_parallel, tolerance)
    memory = MemoryWatch(devices)
    with count_traces() as traces, quiet() as collect:
        warm_up(traces, single, parallel)
        wait_ns = _waiting(parallel, clock)
        memory.start()
        before = traces.times

        def timed(side: Program) -> int:
            begin = clock()
            outputs = side()
            synchronise(outputs)
            end = clock()
            memory.look()
            return end - begin

        samples = run_pairs(
            lambda: timed(single),
            lambda: timed(parallel),
            budget_s=budget_s,
            half_width=half_width,
            confidence=confidence,
            seed=seed,
            clock=clock,
            between=collect,
        )
        traced = traces.times - before
    _compare_last(single, parallel, first_single, tolerance)
    return Measured(samples, traced, wait_ns, memory.peaks(), tuple(doubts))


def compare_once(
    single: Program,
    parallel: Program,
    *,
    devices: Sequence[Device],
    half_width: float,
    budget_s: float,
    why: str,
    tolerance: float | None = None,
) -> SpeedupRecord:
    """Run both sides once and compare them, without measuring.

    The speedup of the record is NaN, and ``why`` its first warning.

    Raises:
        UsageError: an argument is not usable.
        OutputsDiffer: the two compute different results.
    """
    _check(single, parallel, devices, budget_s, half_width, 0.95)
    doubts = compare_outputs(*first_outputs(single, parallel), tolerance)
    label = speed_label(devices)
    return SpeedupRecord(
        devices=tuple(device.name for device in devices),
        kind=kind_of(devices),
        label=label.text,
        gates=False,
        speedup=Interval(math.nan, math.nan, math.nan, 0.95),
        efficiency=math.nan,
        single_ns=(),
        parallel_ns=(),
        stopped="disabled",
        wanted_half_width=half_width,
        budget_s=budget_s,
        elapsed_s=0.0,
        warnings=(why, *doubts),
    )


def first_outputs(single: Program, parallel: Program) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Call each side once, and give its outputs as arrays by path.

    Raise OutputsDiffer if the two return different nests.
    """
    outputs = single(), parallel()
    same_nest(*outputs)
    return arrays_of(outputs[0]), arrays_of(outputs[1])


def _compare_last(single: Program, parallel: Program, first: Mapping[str, Any], tolerance: float | None) -> None:
    """Compare once more after all calls, if ``single`` keeps no state: a race may show late."""
    last_single, last_parallel = first_outputs(single, parallel)
    # NumPy takes two None for equal.
    if all(np.array_equal(first[name], last) for name, last in last_single.items()):
        compare_outputs(last_single, last_parallel, tolerance)


def _waiting(side: Program, clock: Callable[[], int]) -> float:
    """Time the wait for finished outputs, in ns: a part of each time that is not work."""
    outputs = side()
    synchronise(outputs)
    taken = []
    for _ in range(_WAITS):
        begin = clock()
        synchronise(outputs)
        taken.append(clock() - begin)
    return float(median(taken))


@contextmanager
def quiet() -> Iterator[Callable[[], None]]:
    """Keep the garbage collector out of the body; yields a function that lets it run now and then.

    Existing objects are frozen, or each collection would walk all of TensorFlow. Objects that the caller has frozen
    stay frozen.
    """
    enabled = gc.isenabled()
    ours = gc.get_freeze_count() == 0
    gc.collect()
    gc.freeze()
    gc.disable()
    last_ns = time.monotonic_ns()

    def collect() -> None:
        nonlocal last_ns
        if time.monotonic_ns() - last_ns >= _COLLECT_EVERY_NS:
            gc.collect()
            last_ns = time.monotonic_ns()

    try:
        yield collect
    finally:
        if ours:
            gc.unfreeze()
        if enabled:
            gc.enable()


def _check(
    single: Any, parallel: Any, devices: Sequence[Device], budget_s: float, half_width: float, confidence: float
) -> None:
    for name, side in (("single", single), ("parallel", parallel)):
        if not callable(side):
            raise UsageError(f"{name}={side!r} is not callable; give a function without arguments that returns tensors")
    if not devices:
        raise UsageError("devices=() is empty; give the devices that `parallel` uses")
    numbers = (("budget_s", budget_s, 1e6), ("half_width", half_width, 1.0), ("confidence", confidence, 1.0))
    for name, value, most in numbers:
        if not 0.0 < value < most:
            raise UsageError(f"{name}={value!r}; accepted: a number above 0 and below {most:g}")
