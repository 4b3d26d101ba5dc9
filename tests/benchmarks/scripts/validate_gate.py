#!/usr/bin/env python
"""Measures how well the gate of speedups judges: false alarms on the same code, and planted slowdowns that it finds.

    python tests/benchmarks/scripts/validate_gate.py  # all four parts, about an hour and a half
    python tests/benchmarks/scripts/validate_gate.py --parts quiet planted-quiet  # with nothing else on the machine
    python tests/benchmarks/scripts/validate_gate.py --parts --results FILE  # only the summary of what is there

Parts: ``quiet`` and ``load``, runs of the same code, the second with a process that keeps the last core busy;
``planted-quiet`` and ``planted-load``, runs whose parallel side does 5 % and 10 % more work of the kind that it does
anyway. Every run is a process of its own that measures five small benchmarks. They are measured once: what the gate's
second look would take back counts as an alarm, or as found. What a run measured is appended to the results, a line of
JSON each, before the next one starts; where the results hold runs already, only those that are missing are made. What
is counted, and what "found" means, stands in ``tests/speed/gate_validation.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

# The repository's own package, whether it is installed or not.
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

#: Part: whether there is a competing load, and how many links of work are planted on top of LINKS.
PARTS = {"quiet": (False, 0), "load": (True, 0), "planted-quiet": (False, 1), "planted-load": (True, 2)}
#: Links of the chain that a benchmark is made of.
LINKS = 20
#: A planted link works on so much more data, because a call is more than its links: one makes it about 5 % longer, two
#: about 10 %. How much it really is, the summary says.
MORE_DATA = 0.3
THRESHOLDS = (0.05, 0.02)
DEFAULT_RESULTS = Path("profiles/benchmarks/validate_gate.jsonl")
#: It ends by itself when the script that started it is gone, also after kill -9.
_BUSY = """
import os, sys
parent = os.getppid()
os.sched_setaffinity(0, {int(sys.argv[1])})
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


def links(tf: Any) -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """The benchmarks: what a chain starts with, and the link that is applied again and again. float32."""

    def uniform(*shape: int) -> Any:
        return tf.random.stateless_uniform(shape, [1, 2], -1.0, 1.0)

    weight, batch, kernel = uniform(112, 112) * 0.1, uniform(6, 48, 48) * 0.15, uniform(3, 3, 8, 8) * 0.1
    return {
        "matmul": (lambda: uniform(112, 112), lambda x: tf.matmul(x, weight)),
        "batched matmul": (lambda: uniform(6, 48, 48), lambda x: tf.matmul(x, batch)),
        "elementwise": (lambda: uniform(50_000), lambda x: tf.tanh(x) * 1.01),
        "convolution": (lambda: uniform(1, 24, 24, 8), lambda x: tf.nn.conv2d(x, kernel, 1, "SAME")),
        "dense layer": (lambda: uniform(100, 112), lambda x: tf.nn.relu(tf.matmul(x, weight)) + 0.01),
    }


def sides(tf: Any, devices: Any, start: Any, link: Any, planted: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Both sides of a benchmark: a chain for each device, one after the other on the first, or side by side.

    ``planted`` links more are run on each device of the parallel side; its results are the same.
    """
    variables, nothings = [], []
    for device in devices:
        with tf.device(device.name):
            variables.append(tf.Variable(start()))
            nothings.append(tf.Variable(0.0))  # a zero that no optimizer knows

    def chain(variable: Any, nothing: Any, more: int) -> Any:
        x = variable.read_value()
        for _ in range(LINKS):
            x = link(x)
        axis = 0 if x.shape.rank < 3 else 1
        beside = tf.split(x, [int(MORE_DATA * x.shape[axis]), -1], axis)[0]
        extra = tf.concat([x, beside], axis) if more else x
        for _ in range(more):
            extra = link(extra)
        # A control dependency on the extra links would not do: TensorFlow's optimizer takes away what only controls.
        return tf.reduce_sum(x) + nothing.read_value() * tf.reduce_sum(extra)

    def single() -> Any:
        sums: list[Any] = []
        with tf.device(devices[0].name):
            for variable, nothing in zip(variables, nothings, strict=True):
                with tf.control_dependencies(sums[-1:]):
                    sums.append(chain(variable, nothing, 0))
        return sums

    def parallel() -> Any:
        sums: list[Any] = []
        for device, variable, nothing in zip(devices, variables, nothings, strict=True):
            with tf.device(device.name):
                sums.append(chain(variable, nothing, planted))
        return sums

    return tf.function(single), tf.function(parallel)


def measure_here(spec: str, planted: int, seconds: float) -> dict[str, Any]:
    """Measure all benchmarks in this process; a run as plain values."""
    import tensorflow as tf

    import harness
    from harness.devices.fingerprint import fingerprint
    from harness.speed.estimate import paired_speedup
    from harness.speed.label import kind_of, speed_label
    from harness.speed.measure import measure_pairs
    from harness.speed.record import SpeedupRecord

    devices = harness.configure(spec)
    label = speed_label(devices)
    records = {}
    for name, (start, link) in links(tf).items():
        both = sides(tf, devices, start, link, planted)
        # The half-width is out of reach, so that every measurement takes its whole time.
        taken = measure_pairs(*both, devices=devices, budget_s=seconds, half_width=1e-5).samples
        speedup = paired_speedup(taken.single_ns, taken.parallel_ns)
        record = SpeedupRecord(
            devices=devices.names,
            kind=kind_of(devices),
            label=label.text,
            gates=label.gates,
            speedup=speedup,
            efficiency=speedup.value / len(devices),
            single_ns=taken.single_ns,
            parallel_ns=taken.parallel_ns,
            stopped=taken.stopped,
            wanted_half_width=1e-5,
            budget_s=seconds,
            elapsed_s=taken.elapsed_s,
        )
        records[name] = asdict(record)
    return {"fingerprint": asdict(fingerprint()), "records": records}


@contextlib.contextmanager
def competing_load(wanted: bool) -> Iterator[None]:
    """Keep the last core that this process may use busy, where it is wanted."""
    if not wanted:
        yield
        return
    core = max(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-c", _BUSY, str(core)]) as busy:
        try:
            yield
        finally:
            busy.kill()


def read_results(path: Path) -> dict[str, list[Any]]:
    """The runs that are there, by part."""
    from harness.speed.baseline import parse_run

    found: dict[str, list[Any]] = {part: [] for part in PARTS}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for number, line in enumerate(lines, 1):
        stored = json.loads(line)
        content = {
            "machine_info": {"harness": stored["fingerprint"]},
            "benchmarks": [
                {"fullname": name, "extra_info": {"harness": record}} for name, record in stored["records"].items()
            ],
        }
        found[stored["part"]].append(parse_run(content, f"{path}, line {number}"))
    return found


def make_runs(part: str, count: int, options: argparse.Namespace, say: Callable[[str], None]) -> None:
    """Make ``count`` runs of a part, and append each to the results."""
    load, planted = PARTS[part]
    worker = json.dumps({"spec": options.spec, "planted": planted, "seconds": options.seconds})
    options.results.parent.mkdir(parents=True, exist_ok=True)
    with competing_load(load):
        for number in range(1, count + 1):
            done = subprocess.run(
                [sys.executable, __file__, "--worker", worker], capture_output=True, check=False, text=True
            )
            if done.returncode != 0:
                raise SystemExit(f"{part}: run {number} ended with exit code {done.returncode}:\n{done.stderr}")
            made = {"part": part, **json.loads(done.stdout.splitlines()[-1])}
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(made) + "\n")
            say(f"{part}: run {number} of {count}")


def summary(results: dict[str, list[Any]], say: Callable[[str], None]) -> None:
    """Say what the runs come to, part by part, with the counts."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "speed"))
    from gate_validation import CALIBRATION_RUNS, count_planted, count_same_code, interval_widths, planted_loss

    for part, runs in results.items():
        same = results["load" if PARTS[part][0] else "quiet"]
        if not runs or len(same) < CALIBRATION_RUNS:
            say(f"\n{part}: {len(runs)} runs, of the same code {len(same)}: too few to say anything")
            continue
        measured = sum(record.elapsed_s for run in runs for record in run.records.values()) / len(runs)
        say(f"\n{part}: {len(runs)} runs of {len(runs[0].records)} benchmarks, {measured:.1f} s of measuring each")
        if PARTS[part][1]:
            say(f"  planted loss of speedup, from all samples: {planted_loss(runs, same):.1%}")
            counts = count_planted(runs, same, THRESHOLDS)
        else:
            counts = count_same_code(runs, THRESHOLDS)
        for count in counts:
            say(f"  {count.what:<42} {count}")
        widths = interval_widths(runs)
        say(
            f"  unpaired intervals are {widths.middle:.1f} times as wide as paired ones "
            f"(quartiles {widths.lower:.1f} to {widths.upper:.1f}, {widths.records} records)"
        )


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=61, help="runs of each part of the same code")
    parser.add_argument("--planted-runs", type=int, default=20, help="runs of each planted part")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=3.0, help="of measuring a benchmark")
    parser.add_argument("--spec", default="cpu:2", help="devices")
    parser.add_argument("--results", type=Path, default=DEFAULT_RESULTS, help="JSON lines; appended to")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        sys.stdout.write(json.dumps(measure_here(**json.loads(options.worker))) + "\n")
        return

    def say(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # one way to end it, as by ^C
    try:
        for part in options.parts:
            wanted = options.planted_runs if PARTS[part][1] else options.runs
            make_runs(part, max(0, wanted - len(read_results(options.results)[part])), options, say)
    except KeyboardInterrupt:
        say("ended by ^C; what was measured is kept")
    summary(read_results(options.results), say)


if __name__ == "__main__":
    main()
