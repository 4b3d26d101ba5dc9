#!/usr/bin/env python
"""How much of the peak of a training step has a line of the program, and what recording its memory costs.

Each model runs in a process of its own, on one software GPU. Steps with and without the recording are timed in pairs,
in random order; starting and reading the recording is not a part of the step.

    python tests/benchmarks/scripts/memory_lines.py  # eight models, about five minutes
    python tests/benchmarks/scripts/memory_lines.py "lstm 128" softgpu:1
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fit_error import cases

MODELS = (
    "mlp 1024x4 sgd",
    "mlp 2048x2 momentum",
    "cnn 16-32-64 adam",
    "cnn norm 16-32 sgd",
    "residual 32x2 adam",
    "transformer 128x2 adam",
    "lstm 128",
    "embedding",
)
PAIRS, STEPS = 9, 3


def training(build: Callable[[], Any], shape: tuple[int, ...], optimizer: Any, rows: int, device: str) -> Any:
    """A training step with everything on a device."""
    import tensorflow as tf

    with tf.device(device):
        model, x = build(), tf.ones((rows, *shape))
        model(x)
        moves = optimizer()
        moves.build(model.trainable_variables)
        y = tf.zeros((rows,), tf.int64)

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> Any:
        with tf.device(device):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True)))
            gradients = tape.gradient(loss, model.trainable_variables)
            moves.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

    return step


def seconds(step: Callable[[], Any], folder: str | None) -> float:
    """The time of some steps, with the recording where there is a folder for it."""
    import tensorflow as tf

    from harness.speed.memory.allocations import record_cpu_allocations
    from harness.speed.timeline.capture import _options

    if folder is not None:
        record_cpu_allocations(on=True)
        tf.profiler.experimental.start(folder, options=_options())
    begin = time.perf_counter()
    for _ in range(STEPS):
        step().numpy()
    taken = time.perf_counter() - begin
    if folder is not None:
        tf.profiler.experimental.stop()
        record_cpu_allocations(on=False)
    return taken


def one(name: str, spec: str) -> None:
    """Print the figures of one model."""
    import harness
    from harness.speed.memory.origins import Origins
    from harness.speed.timeline.profiling import profile_calls

    devices = harness.configure(spec)
    build, shape, optimizer, rows = next(each[1:] for each in cases() if each[0] == name)
    origins = Origins()
    with origins.noted():
        step = training(build, shape, optimizer, rows, devices[0].name)
    with tempfile.TemporaryDirectory() as folder:
        profile = profile_calls(step, devices=devices, calls=3, folder=Path(folder), origins=origins).profile
    [course] = profile.memory
    costs = []
    for _ in range(PAIRS):
        with tempfile.TemporaryDirectory() as folder:
            times = {given: seconds(step, given) for given in random.sample((None, folder), 2)}
        costs.append(times[folder] / times[None])
    sys.stdout.write(
        f"{name:26} {spec:10} peak {course.peak_bytes / 2**20:7.1f} MiB, {course.share_with_line():6.1%} with a line; "
        f"a step takes {statistics.median(costs):.2f} times as long\n"
    )


def main() -> None:
    """Measure one model, or each of :data:`MODELS`."""
    if len(sys.argv) > 1:
        one(*sys.argv[1:3])
        return
    for name in MODELS:
        subprocess.run([sys.executable, __file__, name, "softgpu:1"], check=True)
    for name in MODELS[:3]:
        subprocess.run([sys.executable, __file__, name, "cpu:1"], check=True)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
