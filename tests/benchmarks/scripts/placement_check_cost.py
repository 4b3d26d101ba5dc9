#!/usr/bin/env python
"""What ``PlacementCheck(every=100)`` costs while a model trains, in processor time, which other work hardly changes.

    python tests/benchmarks/scripts/placement_check_cost.py

In one ``fit``, each block of 100 steps is timed, and so is the comparison of the replicas after it. Its time is a share
of that of the block before. The steps are waited for before the comparison begins, else it would include some of them.
The trace of the first step is measured apart: fits of three steps with the callback and without it, in turn.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

# The repository's own package, whether it is installed or not.
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

EVERY, BLOCKS, ROWS, STARTS = 100, 20, 64, 5
FEATURES, UNITS, CLASSES = 256, 512, 10


def _model() -> Any:
    import keras
    import tensorflow as tf

    import harness

    devices = harness.configure("cpu:2")
    with tf.distribute.MirroredStrategy(list(devices.names)).scope():
        layers = [keras.Input((FEATURES,)), *(keras.layers.Dense(UNITS, "relu") for _ in range(2))]
        model = keras.Sequential([*layers, keras.layers.Dense(CLASSES)])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def _timed(check: Any) -> tuple[list[float], list[float]]:
    """Have a callback note the processor time of each block of steps, and of the comparison after it."""
    compare, blocks, comparisons = check._compare_replicas, [], []
    ended = [time.process_time()]

    def timed() -> None:
        compare()  # waits for the steps, and for the first time builds the function that compares
        began = time.process_time()
        blocks.append(began - ended[0])
        compare()
        ended[0] = time.process_time()
        comparisons.append(ended[0] - began)

    check._compare_replicas = timed
    return blocks, comparisons


def main() -> None:
    """Print the time of a comparison as a share of 100 steps, and of the trace of the first step."""
    import numpy as np
    import tensorflow as tf

    import harness

    model = _model()
    drawn = np.random.default_rng(0)
    x = drawn.normal(size=(EVERY * ROWS, FEATURES)).astype("float32")
    y = drawn.integers(0, CLASSES, EVERY * ROWS)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(ROWS).repeat()
    model.fit(data.take(10), verbose=0)
    check = harness.distribute.PlacementCheck(EVERY)
    blocks, comparisons = _timed(check)
    model.fit(data.take(BLOCKS * EVERY), verbose=0, callbacks=[check])
    # The first comparison follows the first step.
    shares = [after / block for block, after in zip(blocks[1:], comparisons[1:], strict=True)]
    low, _, high = quantiles(shares, n=4)
    step_ms = median(blocks[1:]) / EVERY * 1e3
    print(f"{len(shares)} comparisons of the replicas, each after {EVERY} steps of {step_ms:.1f} ms; {check}")
    print(f"a comparison takes {median(shares):.3%} of the time of {EVERY} steps ({low:.3%} to {high:.3%})")
    starts: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(STARTS):
        for checked in random.sample((True, False), 2):
            callbacks = [harness.distribute.PlacementCheck(EVERY)] if checked else []
            began = time.process_time()
            model.fit(data.take(3), verbose=0, callbacks=callbacks)
            starts[checked].append(time.process_time() - began)
    more_s = median(starts[True]) - median(starts[False])
    print(f"the trace of the first step takes {more_s:.2f} s, once in a fit")


if __name__ == "__main__":
    main()
