"""How many times as fast one form of a step is as another, and, on a busy machine, how much less the cores do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
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
#: Calls, and their seconds, by which the processor time of each core is measured at least.
_CALLS, _BUSIEST_S = 5, 1.0
#: The share of a step's time from which on a core that waits for other programs makes the speedup say little.
_WAITED = 0.2
#: Where less is gained, copies take about as much time as what several devices save.
_WORTH = 1.1


@dataclass(frozen=True)
class Gain:
    """The speedup of a step over another form of it: changed over as it is, or on several devices over one.

    ``busiest_s`` is the processor time that the busiest core of ``cores:N`` needs for a call of either, in seconds,
    where other programs took so much of the cores that the speedup says little; ``None`` elsewhere.
    """

    speedup: Interval
    busiest_s: tuple[float, float] | None = None


def gain_of(step: StepCall, before: Callable[..., Any], after: Callable[..., Any], devices: Sequence[Device]) -> Gain:
    """Measure how many times as fast the step is with ``after`` as its function as with ``before``."""
    calls = _timed(step, before), _timed(step, after)
    samples = measure_pairs(
        *calls,
        devices=devices,
        budget_s=_BUDGET_S,
        half_width=0.03,
        confidence=0.95,
        seed=0,
        tolerance=None,
    ).samples
    speedup = paired_speedup(samples.single_ns, samples.parallel_ns, 0.95)
    (before_s, waited_before), (after_s, waited_after) = (_busiest(call, devices) for call in calls)
    disturbed = max(waited_before, waited_after) > _WAITED and min(before_s, after_s) > 0
    return Gain(speedup, (before_s, after_s) if disturbed else None)


def gain_lines(gain: Gain, label: str, *, change: bool) -> tuple[str, ...]:
    """What was gained, one line each: by a ``change`` of the step, or else by several devices over one.

    ``label`` says what it was measured on.
    """
    found = gain.speedup
    interval = f"({found.lower:.2f} to {found.upper:.2f}), on {label}"
    if change:
        lines = [f"Speedup of the step: {found.value:.2f} {interval}"]
    elif found.upper < 1:
        lines = [f"Slower than on one device: {found.value:.2f} times as fast {interval}"]
    elif found.lower <= 1:
        lines = [f"No faster than on one device: {found.value:.2f} times as fast {interval}"]
    else:
        lines = [f"{found.value:.2f} times as fast as on one device {interval}"]
    gained = found.value
    if gain.busiest_s is not None:
        before, after = gain.busiest_s
        gained = max(gained, before / after)
        lines.append(
            f"Other programs use the cores too. By itself, the step is about {before / after:.2f} times as fast: "
            f"the core that works most needs {after * 1e3:,.1f} ms instead of {before * 1e3:,.1f} ms."
        )
    if gained < _WORTH:
        lines.append("Little is gained by a step of this size: give it a batch of the size that you train with.")
    return tuple(lines)


def _timed(step: StepCall, fn: Callable[..., Any]) -> Callable[[], Any]:
    # Each call goes on from the weights of the last one, so that the results of the two are not alike.
    program, inputs, one = tf.function(program_of(step, fn)), inputs_of(step), tf.constant(1.0)

    def call() -> Any:
        program(**inputs)
        return one

    return call


def _busiest(call: Callable[[], Any], devices: Sequence[Device]) -> tuple[float, float]:
    """Seconds of processor time per call of the core that works most, and the share of time that one waits for others.

    Both are 0 for devices of this process.
    """
    servers = [pid for pid in map(server_process, devices) if pid is not None]
    synchronise(call())
    began, before, calls = time.perf_counter(), list(map(_scheduled_s, servers)), 0
    while (wall := time.perf_counter() - began) < _BUSIEST_S or calls < _CALLS:
        synchronise(call())
        calls += 1
    after = list(map(_scheduled_s, servers))
    spent = [(now[0] - then[0], now[1] - then[1]) for now, then in zip(after, before, strict=True)]
    ran, waited = (max((each[at] for each in spent), default=0.0) for at in (0, 1))
    return ran / calls, waited / wall


def _scheduled_s(pid: int) -> tuple[float, float]:
    """Seconds for which the threads of a process ran, and for which they were ready and others had their core."""
    ran, waited = 0, 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread may end meanwhile
            times = path.read_text(encoding="ascii").split()
            ran, waited = ran + int(times[0]), waited + int(times[1])
    return ran / 1e9, waited / 1e9
