"""Wrong device: a thread does not inherit the device scope of its caller (P13). Eager only: graphs have no threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds, planted
from harness.faults.samples import add_up, dense, losses, sample, shares, uneven
from harness.lazy import tf

FAULTS: list[Fault[Case]] = []


def _threads(devices: Devices, fn: Callable[[Any], Any], reference: Callable[[Any], Any]) -> Case:
    """``fn`` of each shard in its own thread, which is started in the device's scope, or opens the scope itself."""
    rows = uneven(len(devices))
    sizes = shares(rows, len(devices))

    def parallel(x: Any) -> Any:
        with ThreadPoolExecutor(len(devices)) as pool:
            futures = []
            for device, part in zip(devices, tf.split(x, sizes), strict=True):
                with tf.device(device.name):
                    futures.append(pool.submit(fn, part))
            return tf.concat([future.result() for future in futures], axis=0)

    def in_scope(device: str, part: Any) -> Any:
        with tf.device(device):
            return fn(part)

    def twin(x: Any) -> Any:
        with ThreadPoolExecutor(len(devices)) as pool:
            return tf.concat(list(pool.map(in_scope, devices.names, tf.split(x, sizes))), axis=0)

    return Case(parallel, twin, reference, {"x": sample(rows, 3)}, kinds("unused-device"), modes=("eager",))


@planted(
    FAULTS, "P13-eager", "threads without the scope of their caller", "tensorflow 44487", "no op of the program ran on"
)
def _eager_in_threads(devices: Devices) -> Case:
    model, _ = dense()
    return _threads(devices, model, model)


@planted(FAULTS, "P13-function", "threads that call one tf.function", "tensorflow 44487", "no op of the program ran on")
def _function_in_threads(devices: Devices) -> Case:
    """One ``tf.function``, traced before, called by all threads."""
    model, _ = dense()
    compiled = tf.function(model, input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    compiled(sample(2, 3))
    return _threads(devices, compiled, model)


@planted(
    FAULTS,
    "P13-step",
    "a gradient taken outside of the scope, in threads",
    "tensorflow 44487",
    "backward ops are not on the devices of their forward ops",
)
def _step_in_threads(devices: Devices) -> Case:
    """A training step per thread: the scope ends before the gradient is taken."""
    # Threads that run the same eager op on one GPU can read one another's arguments in host memory (tensorflow 123980).
    one_at_a_time = threading.Lock()
    rows = uneven(len(devices))
    per_row, variables = losses()
    sizes = shares(rows, len(devices))

    def reference(x: Any) -> Any:
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(per_row(x))
        return [value, *tape.gradient(value, variables)]

    def late(device: str, part: Any) -> Any:
        with one_at_a_time:
            with tf.device(device), tf.GradientTape() as tape:
                value = tf.reduce_sum(per_row(part))
            return [value, *tape.gradient(value, variables)]

    def in_scope(device: str, part: Any) -> Any:
        with tf.device(device):
            return reference(part)

    def on_all(x: Any, work: Callable[[str, Any], Any]) -> Any:
        with ThreadPoolExecutor(len(devices)) as pool:
            towers = list(pool.map(work, devices.names, tf.split(x, sizes)))
        return add_up(towers)

    return Case(
        lambda x: on_all(x, late),
        lambda x: on_all(x, in_scope),
        reference,
        {"x": sample(rows, 3)},
        kinds("gradient-placement"),
        modes=("eager",),
    )
