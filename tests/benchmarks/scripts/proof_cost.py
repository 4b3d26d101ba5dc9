#!/usr/bin/env python
"""What a proof adds to ``verify``: CPU time with one, in multiples of that without, on the pairs of ``tests/proof``.

    python tests/benchmarks/scripts/proof_cost.py  # every third pair; about two minutes
    python tests/benchmarks/scripts/proof_cost.py --every 1
    python tests/benchmarks/scripts/proof_cost.py --model ResNet50  # what is proved of it, and in which time

The three ways take turns in one process, each with programs of its own, so that none finds a graph that another built.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

_ROOT = Path(__file__).resolve().parents[3]
# The repository's own package, whether it is installed or not, and the pairs.
sys.path[:0] = [str(_ROOT), str(_ROOT / "tests" / "proof")]

WAYS: dict[str, Any] = {"without": False, "these shapes": None, "any batch size": True}


def of_a_model(name: str) -> None:
    """Prove that a Keras application under ``make_parallel``, with its gradients, is itself; print the time."""
    import numpy as np
    import tensorflow as tf

    import harness

    devices = harness.configure("cpu:2")
    model = getattr(tf.keras.applications, name)(weights=None, input_shape=(64, 64, 3), classes=10)
    inputs = {"x": np.ones((4, 64, 64, 3), "float32")}

    def forward(x: Any) -> Any:
        return model(x, training=False)

    began = time.process_time()
    parallel = harness.make_parallel(forward, devices)
    proof = harness.prove(parallel, forward, inputs, variables=model.trainable_variables)
    sys.stdout.write(f"{name}: {str(proof).splitlines()[0]}\n")
    sys.stdout.write(f"{time.process_time() - began:.0f} s of processor time with tracing both programs twice\n")


def main() -> None:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=3, help="take every Nth pair")
    parser.add_argument("--rounds", type=int, default=3, help="verifications of each way")
    parser.add_argument("--model", help="a Keras application, instead of the pairs")
    options = parser.parse_args()
    if options.model:
        of_a_model(options.model)
        return

    import harness

    devices = harness.configure("cpu:4")
    from pairs_of_loops_and_shards import PAIRS

    ratios: dict[str, list[float]] = {way: [] for way in WAYS}
    for name in list(PAIRS)[:: options.every]:
        taken: dict[str, list[float]] = {way: [] for way in WAYS}
        # The first round is not counted: TensorFlow loads what it needs.
        for turn in range(options.rounds + 1):
            for way, prove in WAYS.items():
                pair = PAIRS[name](devices)
                began = time.process_time()
                harness.verify(
                    pair.parallel,
                    pair.reference,
                    pair.inputs,
                    devices=devices,
                    variables=pair.variables,
                    gradients=pair.gradients,
                    prove=prove,
                )
                if turn:
                    taken[way].append(time.process_time() - began)
        least = median(taken["without"])
        for way in WAYS:
            ratios[way].append(median(taken[way]) / least)
        sys.stdout.write(f"{name}: {least:.2f} s, " + ", ".join(f"{w} {r[-1]:.2f}" for w, r in ratios.items()) + "\n")
        sys.stdout.flush()
    for way, found in ratios.items():
        sys.stdout.write(f"{way}: {median(found):.2f} times, median of {len(found)} pairs\n")


if __name__ == "__main__":
    main()
