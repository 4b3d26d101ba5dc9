"""Runs in a separate process that is given one card: takes the card, computes, and reports what it saw.

Started as ``python -m harness.hardware.isolation.measure`` with one argument, JSON: ``cpus`` and ``environment`` of its
slot.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from harness.hardware.own_process import answer
from harness.lazy import tf

#: Side of the matrices, and how often they are multiplied, so that all threads of TensorFlow's pools have started.
SIZE, TIMES = 256, 20


def main() -> None:
    """Take the card and print what is visible, as one line of JSON."""
    from harness.devices.nvidia import cuda_uuids, memory_by_process
    from harness.parallel.tasks import take

    slot = json.loads(sys.argv[1])
    take(slot["cpus"], slot["environment"])
    import numpy as np

    tf.config.set_soft_device_placement(False)
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        # Others may be using the memory of the card.
        tf.config.experimental.set_memory_growth(gpu, True)
    random = np.random.default_rng(os.getpid())
    a, b = (random.integers(-8, 9, (SIZE, SIZE)).astype(np.float32) for _ in range(2))
    with tf.device("/GPU:0" if gpus else "/CPU:0"):
        product = tf.matmul(a, b)
        for _ in range(TIMES):
            product = tf.matmul(a, b)
        right = bool(np.array_equal(product.numpy(), a.astype(np.float64) @ b.astype(np.float64)))
    memory = memory_by_process()
    own = sorted(uuid for uuid, process in memory if process == os.getpid())
    seen = {
        "gpus": len(gpus),
        "uuids": list(cuda_uuids()) if gpus else [],
        "used": own or None,
        "cpus": sorted(allowed_cpus_of_threads()),
        "right": right,
        "device": product.backing_device,
    }
    answer(seen)


def allowed_cpus_of_threads() -> set[int]:
    """Return the CPUs that any thread of this process may run on."""
    cpus: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        try:
            cpus |= os.sched_getaffinity(int(thread.name))
        except ProcessLookupError:
            continue
    return cpus


if __name__ == "__main__":
    main()
