#!/usr/bin/env python
"""What ``verify`` costs on a real model, in time and memory: ResNet50 split by ``make_parallel``, with gradients.

    python tests/benchmarks/scripts/verify_cost.py  # ResNet50 on cpu:2; a few minutes
    python tests/benchmarks/scripts/verify_cost.py --profile FILE  # the same call of verify under cProfile

The least work is to run both programs, in eager code and as a graph, with gradients for all variables, and to fetch
the results. Each side runs in fresh processes in turn, so that each has a peak of its own. Memory is the peak above
what the process had with the model in place, in multiples of the model's weights.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

_ROOT = Path(__file__).resolve().parents[3]
# The repository's own package, whether it is installed or not, and what the least work is.
sys.path[:0] = [str(_ROOT), str(_ROOT / "tests" / "benchmarks")]

SIDES = ("least", "verify")
_ROWS, _SIDE = 8, 64


def programs(spec: str) -> dict[str, Any]:
    """The model, its split, and the inputs; variables are made here, so that they are no cost of either side."""
    import numpy as np
    import tensorflow as tf

    import harness

    devices = harness.configure(spec)
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.applications.ResNet50(weights=None, input_shape=(_SIDE, _SIDE, 3), classes=100)

    def one(x: Any) -> Any:
        return model(x, training=False)

    x = np.random.default_rng(0).normal(size=(_ROWS, _SIDE, _SIDE, 3)).astype(np.float32)
    variables = [variable.value for variable in model.trainable_variables]
    weights = sum(variable.numpy().nbytes for variable in model.variables)
    return {
        "devices": devices,
        "one": one,
        "parallel": harness.make_parallel(one, devices),
        "inputs": {"x": x},
        "variables": variables,
        "weights_bytes": weights,
    }


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure_here(side: str, spec: str, profile: str | None) -> dict[str, float]:
    """Run one side in this process."""
    from test_verify_cost import run_least

    import harness

    made = programs(spec)
    one, parallel, inputs, variables = (made[name] for name in ("one", "parallel", "inputs", "variables"))

    def least() -> None:
        run_least((parallel, one), inputs, variables, gradients=True)

    def verify() -> None:
        verification = harness.verify(parallel, one, inputs, devices=made["devices"], variables=variables)
        sys.stderr.write(f"{verification.verdict}: {verification.exercised}\n")
        if verification.verdict is not harness.Verdict.PASS:
            raise SystemExit(str(verification))

    call: Callable[[], None] = {"least": least, "verify": verify}[side]
    before = _peak_bytes()
    began, began_wall = time.process_time(), time.perf_counter()
    if profile:
        import cProfile

        with cProfile.Profile() as profiler:
            call()
        profiler.dump_stats(profile)
    else:
        call()
    return {
        "cpu_s": time.process_time() - began,
        "wall_s": time.perf_counter() - began_wall,
        "weights": (_peak_bytes() - before) / made["weights_bytes"],
    }


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="cpu:2", help="device spec")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each side")
    parser.add_argument("--profile", help="write cProfile's statistics of verify here, and measure nothing else")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side or options.profile:
        found = measure_here(options.side or "verify", options.devices, options.profile)
        sys.stdout.write(json.dumps(found) + "\n")
        return
    rows: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(options.rounds):
        for side in SIDES:
            command = [sys.executable, __file__, "--devices", options.devices, "--side", side]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rows[side].append(json.loads(done.stdout.splitlines()[-1]))
            sys.stdout.write(f"{side}: " + ", ".join(f"{k} {v:.2f}" for k, v in rows[side][-1].items()) + "\n")
            sys.stdout.flush()
    for what in ("cpu_s", "wall_s"):
        ratios = [ours[what] / least[what] for ours, least in zip(rows["verify"], rows["least"], strict=True)]
        sys.stdout.write(f"verify / least, {what}: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})\n")
    peak = median(row["weights"] for row in rows["verify"])
    sys.stdout.write(f"peak memory of verify: {peak:.1f} times the weights\n")


if __name__ == "__main__":
    main()
