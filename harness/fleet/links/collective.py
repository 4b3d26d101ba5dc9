"""One exchange, in a process of its own: TensorFlow's collectives between the members, of values that are known.

The data is in the memory of the hosts and goes over TensorFlow's own transport, gRPC. No GPU is used.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.fleet.links.record import Timing
from harness.lazy import tf

#: Each operation is repeated; the fastest counts.
_REPEATS = 5
#: Sums of so large integers are exact in float32 over 128 members.
_LARGEST = 2**16
_GROUP = 41


def exchange(
    addresses: Sequence[str], index: int, seed: int, sizes_bytes: Sequence[int], limit_s: float
) -> tuple[list[str], list[Timing]]:
    """Take part in an exchange as member ``index``. Return what was wrong, and the times in seconds.

    All members call it with the same arguments but for ``index``. It waits for the others, and can be called once in a
    process. ``sizes_bytes``: of the tensors, multiples of 4. Raise TensorFlow's errors where a member is lost.
    """
    task = {"type": "worker", "index": index}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": list(addresses)}, "task": task})
    tf.config.set_visible_devices([], "GPU")
    tf.distribute.MultiWorkerMirroredStrategy()  # connects the members
    keys = itertools.count(1000)
    common: dict[str, Any] = {"group_size": len(addresses), "group_key": _GROUP, "timeout_seconds": limit_s}

    def reduced(given: Any, key: int) -> Any:
        return tf.raw_ops.CollectiveReduceV2(
            input=given,
            instance_key=key,
            merge_op="Add",
            final_op="Id",
            communication_hint="ring",
            ordering_token=[],
            **common,
        )

    def there_and_back(given: Any, key: int, back: int) -> Any:
        """Send from the first to the second, and from there what arrived back."""
        shape = tf.shape(given)
        if index == 0:
            tf.raw_ops.CollectiveBcastSendV2(input=given, instance_key=key, **common)
            return tf.raw_ops.CollectiveBcastRecvV2(T=tf.int32, shape=shape, instance_key=back, **common)
        arrived = tf.raw_ops.CollectiveBcastRecvV2(T=tf.int32, shape=shape, instance_key=key, **common)
        tf.raw_ops.CollectiveBcastSendV2(input=arrived, instance_key=back, **common)
        return arrived

    wrong: list[str] = []
    timings: list[Timing] = []
    with tf.device(f"/job:worker/task:{index}/device:CPU:0"):
        for size in sizes_bytes:
            shares = [_drawn(seed, member, size // 4, _LARGEST).astype(np.float32) for member in range(len(addresses))]
            total = np.add.reduce(shares)
            own = tf.constant(shares[index])
            taken = _measured(
                lambda given: reduced(given, next(keys)), own, total, f"all-reduce of {size:,} bytes", wrong
            )
            timings.append(Timing("all-reduce", size, taken))
            if len(addresses) == 2:
                bits = _drawn(seed + 1, 0, size // 4, 2**31)
                taken = _measured(
                    lambda given: there_and_back(given, next(keys), next(keys)),
                    tf.constant(bits),
                    bits,
                    f"copy of {size:,} bytes",
                    wrong,
                )
                timings.append(Timing("copy", size, taken))
        # Nobody leaves before all are done.
        reduced(tf.zeros(1), next(keys)).numpy()
    return wrong, timings


def _measured(run: Callable[[Any], Any], given: Any, expected: NDArray[Any], what: str, wrong: list[str]) -> float:
    fastest = float("inf")
    for _ in range(_REPEATS):
        began = time.perf_counter()
        arrived = landed(run(given))
        fastest = min(fastest, time.perf_counter() - began)
        differ = int(np.count_nonzero(arrived != expected))
        if differ and not any(each.startswith(what) for each in wrong):
            wrong.append(f"{what}: {differ:,} of {expected.size:,} values are wrong")
    return fastest


def landed(tensor: Any) -> NDArray[Any]:
    """Return what has arrived. Waits for it."""
    made: NDArray[Any] = tensor.numpy()
    return made


def _drawn(seed: int, member: int, count: int, largest: int) -> NDArray[np.int32]:
    return np.random.default_rng([seed, member]).integers(-largest, largest, count, dtype=np.int64).astype(np.int32)
