"""The task of a process that is given one card: takes the card, computes, and reports what it saw."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from harness.hardware.isolation.judge import Seen
from harness.lazy import tf
from harness.runner.job import typed_task
from harness.runner.messages import Answer
from harness.runner.worker import Send

#: Side of the matrices, and how often they are multiplied, so that all threads of TensorFlow's pools have started.
SIZE, TIMES = 256, 20


@typed_task
def run(send: Send, cpus: tuple[int, ...] | None, environment: dict[str, str]) -> None:
    """Take the card of the slot with these ``cpus`` and this ``environment``, and send what is visible."""
    from harness.devices.nvidia import cuda_uuids, memory_by_process
    from harness.parallel.tasks import take

    take(cpus, environment)
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
    own = sorted(uuid for uuid, process in memory_by_process() if process == os.getpid())
    seen = Seen(
        gpus=len(gpus),
        uuids=cuda_uuids() if gpus else (),
        used=tuple(own) or None,
        cpus=tuple(sorted(allowed_cpus_of_threads())),
        right=right,
        device=product.backing_device,
    )
    send(Answer(asdict(seen)))


def allowed_cpus_of_threads() -> set[int]:
    """Return the CPUs that any thread of this process may run on."""
    cpus: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        try:
            cpus |= os.sched_getaffinity(int(thread.name))
        except ProcessLookupError:
            continue
    return cpus
