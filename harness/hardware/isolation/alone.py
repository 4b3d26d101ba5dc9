"""What runs in a process of its own that is given one card: it takes the card, computes, and says what it saw.

Started with ``python -m harness.hardware.isolation.alone`` and one argument, JSON: ``cpus`` and ``environment`` of its
slot.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from harness.hardware.own_process import answer

#: Side of the matrices, and how often they are multiplied, so that every thread of TensorFlow's pools is there.
SIZE, TIMES = 256, 20


def main() -> None:
    """Take the card and say what there is to see, as one line of JSON."""
    from harness.devices.nvidia import cuda_uuids, memory_by_process
    from harness.parallel.tasks import take

    slot = json.loads(sys.argv[1])
    take(slot["cpus"], slot["environment"])
    import numpy as np
    import tensorflow as tf

    tf.config.set_soft_device_placement(False)
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        # The whole memory of the card is not needed, and somebody may use it.
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
    """The CPUs that any thread of this process may run on."""
    cpus: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        try:
            cpus |= os.sched_getaffinity(int(thread.name))
        except ProcessLookupError:
            continue
    return cpus


if __name__ == "__main__":
    main()
