"""Wrong device: a thread does not inherit the device scope of its caller (P13). Eager only: graphs have no threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault
from harness.faults.samples import add_up, sample, uneven
from harness.faults.slips import Towers, slip
from harness.lazy import tf


def _in_threads(t: Towers, x: Any, work: Callable[[str, Any], Any]) -> list[Any]:
    with ThreadPoolExecutor(t.count) as pool:
        return list(pool.map(work, t.names, t.split(x)))


def _in_scope(fn: Callable[[Any], Any], name: str, part: Any) -> Any:
    with tf.device(name):
        return fn(part)


def _threads(model: Callable[[Towers, Any], Any]) -> Callable[[Devices], Case]:
    """The model of each shard in its own thread, started in the device's scope; in the twin it opens the scope."""

    def faulty(t: Towers, x: Any) -> Any:
        with ThreadPoolExecutor(t.count) as pool:
            futures = []
            for name, part in t.shards(x):
                with tf.device(name):
                    futures.append(pool.submit(model, t, part))
            return tf.concat([future.result() for future in futures], axis=0)

    def right(t: Towers, x: Any) -> Any:
        return tf.concat(_in_threads(t, x, partial(_in_scope, partial(model, t))), axis=0)

    return slip(Towers.model, faulty, right, "unused-device", rows=uneven, modes=("eager",))


def _function_in_threads(devices: Devices) -> Case:
    """One ``tf.function``, traced before, called by all threads."""
    compiled = tf.function(Towers(devices).model, input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    compiled(sample(2, 3))
    return _threads(lambda _, x: compiled(x))(devices)


def _step(t: Towers, x: Any) -> Any:
    loss, gradients = t.step(x, lambda part: tf.reduce_sum(t.losses(part)))
    return [loss, *gradients]


#: Threads that run the same eager op on one GPU can read one another's arguments in host memory (tensorflow 123980).
_ONE_AT_A_TIME = threading.Lock()


def _late_gradient(t: Towers, x: Any) -> Any:
    """A training step per thread: the scope ends before the gradient is taken."""

    def step(name: str, part: Any) -> Any:
        with _ONE_AT_A_TIME:
            with tf.device(name), tf.GradientTape() as tape:
                value = tf.reduce_sum(t.losses(part))
            return [value, *tape.gradient(value, [t.w, t.b])]

    return add_up(_in_threads(t, x, step))


FAULTS = (
    Fault(
        "P13-eager",
        "threads that do not inherit the device scope of their caller",
        "tensorflow 44487",
        _threads(Towers.model),
        "no op of the program ran on",
    ),
    Fault(
        "P13-function",
        "threads that call one tf.function, and do not inherit the device scope of their caller",
        "tensorflow 44487",
        _function_in_threads,
        "no op of the program ran on",
    ),
    Fault(
        "P13-step",
        "a gradient taken outside of the scope, in threads",
        "tensorflow 44487",
        slip(
            _step,
            _late_gradient,
            lambda t, x: add_up(_in_threads(t, x, partial(_in_scope, partial(_step, t)))),
            "gradient-placement",
            rows=uneven,
            modes=("eager",),
        ),
        "backward ops are not on the devices of their forward ops",
    ),
)
