"""What a change of a step gains: how many times as fast it is, and, on a busy machine, how much less the cores do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.devices.device import Device
from harness.devices.runtime import server_process
from harness.lazy import tf
from harness.script.capture import StepCall
from harness.script.inputs import inputs_of, program_of
from harness.speed.estimate import paired_speedup
from harness.speed.measure import measure_pairs
from harness.speed.record import Interval
from harness.speed.synchronise import synchronise

#: Seconds for measuring it.
_BUDGET_S = 10.0
#: Calls, and their seconds, by which the processor time of each core is measured at least: Linux counts it in steps of
#: 10 ms.
_CALLS, _BUSIEST_S = 5, 1.0
#: A core that works less of a step's time than this waits for other programs.
_BUSY = 0.8
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Gain:
    """The speedup of a changed step over the step as it is.

    ``busiest_s`` is the processor time that the busiest core of ``cores:N`` needs for a call of either, in seconds,
    where other programs took so much of the cores that the speedup says little; ``None`` elsewhere.
    """

    speedup: Interval
    busiest_s: tuple[float, float] | None = None


def gain_of(step: StepCall, changed: Callable[..., Any], devices: Sequence[Device]) -> Gain:
    """Measure how many times as fast the step is with ``changed`` as its function."""
    before, after = _timed(step, step.fn), _timed(step, changed)
    samples = measure_pairs(
        before,
        after,
        devices=devices,
        budget_s=_BUDGET_S,
        half_width=0.03,
        confidence=0.95,
        seed=0,
        tolerance=None,
    ).samples
    speedup = paired_speedup(samples.single_ns, samples.parallel_ns, 0.95)
    busiest = [_busiest(call, devices) for call in (before, after)]
    disturbed = [(busy, wall) for busy, wall in busiest if busy is not None and busy < _BUSY * wall]
    if len(disturbed) < len(busiest):
        return Gain(speedup)
    return Gain(speedup, (disturbed[0][0], disturbed[1][0]))


def _timed(step: StepCall, fn: Callable[..., Any]) -> Callable[[], Any]:
    # Each call goes on from the weights of the last one, so that the results of the two are not alike.
    program, inputs, one = tf.function(program_of(step, fn)), inputs_of(step), tf.constant(1.0)

    def call() -> Any:
        program(**inputs)
        return one

    return call


def _busiest(call: Callable[[], Any], devices: Sequence[Device]) -> tuple[float | None, float]:
    """The processor time per call of the core that works most, and how long a call takes, both in seconds."""
    servers = [pid for pid in map(server_process, devices) if pid is not None]
    synchronise(call())
    began, before, calls = time.perf_counter(), list(map(_processor_time_s, servers)), 0
    while (wall := time.perf_counter() - began) < _BUSIEST_S or calls < _CALLS:
        synchronise(call())
        calls += 1
    spent = [now - then for now, then in zip(map(_processor_time_s, servers), before, strict=True)]
    return max(spent, default=None) and max(spent) / calls, wall / calls


def _processor_time_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
