#!/usr/bin/env python
"""How well the model of ``harness advise --for`` predicts speedups on two cores of this machine, from its own rates.

python tests/benchmarks/scripts/predicted_speedups.py            # 20 programs, about 15 minutes on a quiet machine
python tests/benchmarks/scripts/predicted_speedups.py --count 10 --seconds 3

Rates (of products, memory, copies, the start of ops and of steps) are measured between the programs, and speedups in
pairs. Each time is that of the fastest call, as other programs only add time; so steps are short.
The programs with even numbers are for tuning; the held-out ones with odd numbers say how far off predictions are.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from predicted_programs import programs

# The repository's own package, whether it is installed or not.
sys.path[:0] = [str(Path(__file__).resolve().parents[3])]

#: A share of 95 in 100 of normally distributed errors is within so many standard deviations.
_WITHIN = 1.96
#: Copies of a calibration: enough to take longer than what a step takes besides. Hops come one after the other.
_HOPS, _LARGE_HOPS, _COPIES = 30, 10, 60


class OwnRates:
    """Small programs whose times give the rates of two cores, kept to be timed again and again."""

    def __init__(self, devices: Any) -> None:
        import tensorflow as tf

        self.tf, (one, two), host = tf, [each.name for each in devices], devices.host
        self.size, self.width, self.times = 256, 1 << 18, 6
        square, vector = tf.random.normal([self.size, self.size]) / 16.0, tf.random.normal([self.width])
        tiny = tf.random.normal([16])
        #: The fastest call of each program so far, in seconds.
        self.fastest: dict[str, float] = {}
        self.calls = {
            "step": self._on([one], lambda x: x + 1.0, tiny),
            "step of both": self._on([one, two], lambda x: x + 1.0, tiny),
            "step with a batch": self._with_batch(one),
            "ops": self._on([one], lambda x: self._chain(x, 200), tiny),
            "host ops": self._on([host], lambda x: self._chain(x, 200), tiny),
            "host": self._on([host], lambda x: x + 1.0, tiny),
            "products": self._on([one], self._products, square),
            "products on both": self._on([one, two], self._products, square),
            "memory": self._on([one], lambda x: self._chain(x, 8), vector),
            "hops": self._hops(one, two, tiny, _HOPS),
            "large hops": self._hops(one, two, vector, _LARGE_HOPS),
            "copies": self._copies(host, one, tiny),
        }

    def measure(self, seconds: float = 0.3) -> None:
        """Time each program for so long."""
        for name, call in self.calls.items():
            end = time.perf_counter() + seconds
            while time.perf_counter() < end or name not in self.fastest:
                began = time.perf_counter()
                call()
                taken = time.perf_counter() - began
                self.fastest[name] = min(taken, self.fastest.get(name, taken))

    def machine(self) -> Any:
        """The machine that these times show."""
        from harness.advice.step_time import Link, Machine, Rates

        t = self.fastest
        launch = max((t["ops"] - t["step"]) / 400, 1e-7)
        host_launch = max((t["host ops"] - t["host"]) / 400, 1e-7)
        remote = max(t["step of both"] - t["step"], 0.0)
        flops = self.times * 2.0 * self.size**3 / max(t["products"] - t["step"], 1e-6)
        memory = 18 * 3 * 4.0 * self.width / max(t["memory"] - t["step"] - 18 * launch, 1e-6)
        hop = max(t["hops"] - t["step of both"], 1e-6) / _HOPS
        start = min(max(t["copies"] - t["step"], 1e-6) / _COPIES, hop)
        large = max(t["large hops"] - t["step of both"], 1e-6) / _LARGE_HOPS
        byte = max(large - hop, 1e-6) / (4.0 * self.width) - 5 / memory
        link = Link(1 / max(byte, 1e-11), start, hop - start)
        together = (t["products on both"] - t["step of both"]) / max(t["products"] - t["step"], 1e-6)
        device, host = Rates({"": flops}, memory, launch, launch / 2), Rates({"": flops}, memory, host_launch)
        return Machine(device, host, link, link, max(t["step with a batch"] - remote, 0.0), remote, max(together, 1.0))

    def _on(self, places: Sequence[str], body: Callable[[Any], Any], value: Any) -> Callable[[], object]:
        given = []
        for place in places:
            with self.tf.device(place):
                given.append(self.tf.identity(value))

        def both() -> list[Any]:
            found = []
            for place, each in zip(places, given, strict=True):
                with self.tf.device(place):
                    found.append(self.tf.reshape(body(each), [-1])[0])
            return found

        return self._called(both)

    def _with_batch(self, place: str) -> Callable[[], object]:
        """A step as users take it: of a NumPy batch, and with a variable that it changes."""
        from harness.speed.synchronise import synchronise

        batch = np.ones((64, 256), "float32")
        with self.tf.device(place):
            variable = self.tf.Variable(self.tf.zeros([256]))

        def step(batch: Any) -> Any:
            with self.tf.device(place):
                variable.assign_add(batch[0])
                return batch[0, 0]

        run: Any = self.tf.function(step)
        return lambda: synchronise(run(batch))

    def _called(self, body: Callable[[], list[Any]]) -> Callable[[], object]:
        from harness.speed.synchronise import synchronise

        run: Any = self.tf.function(body)
        return lambda: synchronise(run())

    def _chain(self, x: Any, count: int) -> Any:
        """Twice as many ops that TensorFlow's optimizer does not join, on three tensors each."""
        y = x + 1.0
        for _ in range(count):
            x, y = self.tf.maximum(x, y), x - y
        return x + y

    def _products(self, x: Any) -> Any:
        y = x
        for _ in range(self.times):
            y = y @ x
        return y

    def _hops(self, one: str, two: str, value: Any, count: int) -> Callable[[], object]:
        with self.tf.device(one):
            given = self.tf.identity(value)

        def hops() -> list[Any]:
            x = given
            for number in range(count):
                with self.tf.device(one if number % 2 else two):
                    x = self.tf.maximum(x, -x)
            with self.tf.device(one):
                return [x[0]]

        return self._called(hops)

    def _copies(self, source: str, destination: str, value: Any) -> Callable[[], object]:
        with self.tf.device(source):
            given = [self.tf.identity(value + number) for number in range(_COPIES)]

        def copies() -> list[Any]:
            with self.tf.device(source):
                made = [each * 2.0 for each in given]
            with self.tf.device(destination):
                return [self.tf.add_n(made)[0]]

        return self._called(copies)


def fastest(one: Callable[[], Any], other: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """The fastest calls of two programs, in pairs in random order; in seconds."""
    from harness.speed.synchronise import synchronise

    times: tuple[list[float], list[float]] = ([], [])
    draw, end = random.Random(0), time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 8:
        for side in draw.sample((0, 1), 2):
            began = time.perf_counter()
            synchronise((one, other)[side]())
            times[side].append(time.perf_counter() - began)
    return min(times[0]), min(times[1])


@dataclass(frozen=True)
class Case:
    """A way to run a program: what it does and one device does, and how long a step of both took, in seconds."""

    number: int
    name: str
    way: str
    tasks: tuple[Sequence[Any], Sequence[Any]]
    seconds: tuple[float, float]

    @property
    def measured(self) -> float:
        """The speedup over one device."""
        return self.seconds[0] / self.seconds[1]


def measure(count: int, seconds: float) -> tuple[Any, list[Case]]:
    """Measure the machine, and each way of each program."""
    import tensorflow as tf

    import harness
    from harness.advice.built import built_by
    from harness.advice.counted import tasks_of
    from harness.advice.layers import cut_by_time
    from harness.advice.program import example_of, facts_of
    from harness.advice.running import start
    from harness.advice.script import Source, on_one_device, pipeline
    from harness.evidence.tracing import trace
    from harness.speed.scaling.processes import time_calls

    def layer_s(run: Callable[[], Any]) -> float:
        return statistics.median(time_calls(run, budget_s=0.05)) / 1e9

    devices = harness.configure("cores:2")
    rates = OwnRates(devices)
    found: list[Case] = []
    for number, (name, build) in list(enumerate(programs()))[:count]:
        tf.keras.utils.clear_session()
        gc.collect()
        made = partial(lambda build, name: example_of(built_by(build, name)), build, name)
        example = made()
        facts = facts_of(example, Source("build"), str(devices.spec), None)
        one = start("one device", on_one_device(facts), devices, partial(_parts, made)).warmed_up()
        tasks = tasks_of(trace(one.step))
        scripts = {"make_parallel": on_one_device(facts, parallel=True)}
        if facts.step != "function":
            with tf.device(devices[0].name), contextlib.suppress(ValueError):  # of a model that cannot be cut
                arguments = made().model, example.arrays[0], 2, devices[0].name, layer_s
                scripts["pipeline"] = pipeline(facts, cut_by_time(*arguments, training=facts.step == "training"), 4)
        for way, script in scripts.items():
            other = start(way, script, devices, partial(_parts, made)).warmed_up()
            both = tasks, tasks_of(trace(other.step))
            rates.measure()
            case = Case(number, name, way, both, fastest(one.step, other.step, seconds))
            found.append(case)
            sys.stderr.write(f"{number:2} {name}, {way}: {case.measured:.2f}\n")
            del other
            gc.collect()
    rates.measure(2.0)
    return rates.machine(), found


def _parts(made: Callable[[], Any]) -> Any:
    return made().parts


def factor(errors: Sequence[float]) -> float:
    """The factor within which 95 of 100 predictions are, by the spread of these logarithms of ratios around 0."""
    return math.exp(_WITHIN * math.sqrt(statistics.fmean(each**2 for each in errors)))


def main() -> None:
    """Print a line for each program and way, and how well the speedups were predicted."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="programs")
    parser.add_argument("--seconds", type=float, default=4.0, help="for the pairs of each way")
    options = parser.parse_args()
    machine, cases = measure(options.count, options.seconds)

    from harness.advice.step_time import step_seconds

    sys.stdout.write(f"{machine}\n")
    found = []
    for case in cases:
        one, other = (step_seconds(tasks, machine) for tasks in case.tasks)
        found.append((case.number, one / other, case.measured))
        sys.stdout.write(
            f"{case.number:2} {case.name:40} {case.way:13} predicted {one / other:5.2f} ({1e3 * one:5.1f} and "
            f"{1e3 * other:5.1f} ms), measured {case.measured:5.2f} ({1e3 * case.seconds[0]:5.1f} and "
            f"{1e3 * case.seconds[1]:5.1f} ms)\n"
        )
    errors = {half: [math.log(p / m) for n, p, m in found if n % 2 == half] for half in (0, 1)}
    tuned = factor(errors[0])
    inside = sum(abs(each) <= math.log(tuned) for each in errors[1])
    for half, word in enumerate(("tuned on", "held out")):
        off = sorted(abs(math.expm1(each)) for each in errors[half])
        sys.stdout.write(
            f"{word}: {len(off)} speedups, off by {statistics.median(off):.1%} (median), {off[-1]:.1%} (largest); "
            f"factor of 95 in 100: {factor(errors[half]):.2f}\n"
        )
    sys.stdout.write(f"held out, within the factor {tuned:.2f} of the others: {inside} of {len(errors[1])}\n")
    best = 0
    for number in {each[0] for each in found}:
        ways = [(1.0, 1.0), *((p, m) for n, p, m in found if n == number)]
        best += max(ways)[1] >= 0.97 * max(m for _, m in ways)
    sys.stdout.write(f"the way that was predicted to be best is within 3 % of the best: {best} of {number + 1}\n")


if __name__ == "__main__":
    main()
