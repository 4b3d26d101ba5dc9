"""``harness.measure_speedup``: how many times as fast is a program on several devices as on one of them?"""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from harness._tensorflow import count_traces
from harness.devices.device import Device
from harness.devices.runtime import server_process
from harness.errors import UsageError
from harness.extras import require
from harness.speed.estimate import correlation, efficiency, paired_speedup, relative_half_width, unpaired_speedup
from harness.speed.label import kind_of, speed_label
from harness.speed.memory import MemoryWatch
from harness.speed.outputs import arrays_of, compare_outputs, same_nest
from harness.speed.pairs import Samples, run_pairs
from harness.speed.record import DeviceMemory, Interval, SpeedupRecord
from harness.speed.settle import settle
from harness.speed.suspicions import about_rates, about_times, about_traces, about_waiting
from harness.speed.traced import look_at_both
from harness.speed.work import Work, rate_per_s

Program = Callable[[], Any]

#: Both sides are called at least so often before anything is measured: the first call traces, the second may again,
#: for what the first one made (TensorFlow traces a function twice that makes its variables).
_WARM_UP = 3
#: A side that is traced anew this often is traced at every call.
_MOST_WARM_UP = 8
#: How often waiting for outputs that are there already is timed.
_WAITS = 9
#: The garbage collector runs between pairs, this often at most.
_COLLECT_EVERY_NS = 500_000_000


@dataclass(frozen=True, slots=True)
class Measured:
    """The samples of one measurement, and what was seen beside them."""

    samples: Samples
    #: Functions traced while samples were taken, by either side.
    traces: int
    #: Median time that waiting for outputs takes that are there already, in ns.
    wait_ns: float
    memory: tuple[DeviceMemory, ...]
    #: What could not be compared, a sentence each.
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
    """Measure how many times as fast ``parallel`` is as ``single``, pair by pair.

    Both are called until nothing is traced any more; then in turn, in random order within each pair. A time ends when
    all devices are done and each output can be read. Garbage is collected between pairs only. Afterwards each is
    called once more, traced, for the transfers and the warnings.

    Args:
        single: callable without arguments: the program on one device. It has to be serial there, as a GPU's stream is.
        parallel: callable without arguments: the same on ``devices``.
        devices: the devices that ``parallel`` uses.
        work: the work of one call of either side, for rates.
        budget_s: seconds that measuring pairs may take. Warming up and tracing come on top.
        half_width: relative half-width of the interval at which measuring ends: 0.01 is ± 1 %.
        confidence: of the two-sided interval.
        seed: of the order within the pairs.
        tolerance: largest difference of an output's elements, relative to their own magnitude plus the root mean
            square of the tensor; by default the square root of the dtype's epsilon. Both return any nest of tensors.
            The first calls are compared; the last ones too where ``single`` returns the same each time.
        clock: gives ns, and never goes back.

    Raises:
        UsageError: an argument is not usable.
        OutputsDiffer: the two do not compute the same.
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
    traced = look_at_both(single, parallel, devices)
    label = speed_label(devices)
    flops, moved_bytes = (work.flops, work.moved_bytes) if work is not None else (None, None)
    single_flops, parallel_flops = (rate_per_s(flops, times) for times in (samples.single_ns, samples.parallel_ns))
    single_bytes, parallel_bytes = (
        rate_per_s(moved_bytes, times) for times in (samples.single_ns, samples.parallel_ns)
    )
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
        efficiency=efficiency(speedup.value, len(devices)),
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
    """Warm both sides up, compare what they return, and take the times. The arguments are :func:`measure_speedup`'s.

    ``compared`` says that they were compared before, and that one side may have been called more often since: a
    training step is further on then. So only programs that keep no state are compared again.
    """
    require("scipy")
    first_single, first_parallel = first_outputs(single, parallel)
    doubts = [] if compared else compare_outputs(first_single, first_parallel, tolerance)
    memory = MemoryWatch(devices, process_of)
    with count_traces() as traces, quiet() as collect:
        _warm_up(single, parallel, traces)
        wait_ns = _waiting(parallel, clock)
        memory.start()
        before = traces.times

        def timed(side: Program) -> Callable[[], int]:
            def run() -> int:
                begin = clock()
                outputs = side()
                settle(outputs)
                end = clock()
                memory.look()
                return end - begin

            return run

        samples = run_pairs(
            timed(single),
            timed(parallel),
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
    """Run both sides once and compare them, where nothing is to be measured: a record without times.

    Its speedup is NaN, so that no comparison with it holds, and ``why`` is its first warning.

    Raises:
        UsageError: an argument is not usable.
        OutputsDiffer: the two do not compute the same.
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


def first_outputs(single: Program, parallel: Program) -> tuple[dict[str, Any], dict[str, Any]]:
    """Call each side once; its outputs as arrays by their paths.

    Raises:
        OutputsDiffer: the two return different nests.
    """
    outputs = single(), parallel()
    same_nest(*outputs)
    return arrays_of(outputs[0]), arrays_of(outputs[1])


def _compare_last(single: Program, parallel: Program, first: dict[str, Any], tolerance: float | None) -> None:
    """Compare once more after all the calls, where ``single`` keeps no state: a race shows late, if at all."""
    last_single, last_parallel = first_outputs(single, parallel)
    if all(_same_bits(first[name], last) for name, last in last_single.items()):
        compare_outputs(last_single, last_parallel, tolerance)


def _same_bits(one: Any, other: Any) -> bool:
    import numpy as np

    return (one is None and other is None) or bool(np.array_equal(one, other))


def _warm_up(single: Program, parallel: Program, traces: Any) -> None:
    for calls in range(1, _MOST_WARM_UP + 1):
        before = traces.times
        settle(single())
        settle(parallel())
        if traces.times == before and calls >= _WARM_UP - 1:
            return


def _waiting(side: Program, clock: Callable[[], int]) -> float:
    """How long waiting takes where there is nothing to wait for: a part of each time that is no work, in ns."""
    outputs = side()
    settle(outputs)
    taken = []
    for _ in range(_WAITS):
        begin = clock()
        settle(outputs)
        taken.append(clock() - begin)
    return float(median(taken))


@contextmanager
def quiet() -> Iterator[Callable[[], None]]:
    """Keep the garbage collector out of the body; yields a function that lets it run, now and then.

    What is there before is frozen: without it, each collection would walk all of TensorFlow. What the caller has
    frozen stays so.
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


def process_of(device: Device) -> int | None:
    """The process that carries a device: this one, a server of ``cores:N``, or ``None`` where it is not known."""
    return os.getpid() if device.parsed.job in (None, "localhost") else server_process(device)


def _check(
    single: Any, parallel: Any, devices: Sequence[Device], budget_s: float, half_width: float, confidence: float
) -> None:
    for name, side in (("single", single), ("parallel", parallel)):
        if not callable(side):
            raise UsageError(f"{name}={side!r} is not callable; give a function without arguments that returns tensors")
    if not devices:
        raise UsageError("devices=() names no device; give the devices that parallel uses")
    for name, value, most in (
        ("budget_s", budget_s, 1e6),
        ("half_width", half_width, 1.0),
        ("confidence", confidence, 1.0),
    ):
        if not 0.0 < value < most:
            raise UsageError(f"{name}={value!r}: accepted: a number between 0 and {most:g}, without either")
