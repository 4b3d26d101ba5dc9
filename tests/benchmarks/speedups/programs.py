"""What the benchmarks are made of: parts that run one after the other on one device, or side by side on all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import harness

Part = Callable[[], Any]
#: From this many devices on, there is a speedup to speak of.
SEVERAL = 2


def by_kind(devices: harness.Devices, *, gpu: int, other: int) -> int:
    """A size for these devices: a GPU does in milliseconds what a core does in minutes."""
    return gpu if all(device.kind == "gpu" for device in devices) else other


def in_turn(device: harness.Device, parts: Sequence[Part]) -> Part:
    """All parts on one device, one after the other, as one stream of a GPU would run them; as a ``tf.function``.

    Without the order, TensorFlow runs independent parts on several threads of what is meant to be one device.
    """
    import tensorflow as tf

    def run() -> Any:
        results: list[Any] = []
        with tf.device(device.name):
            for part in parts:
                with tf.control_dependencies(tf.nest.flatten(results[-1:])):
                    results.append(part())
        return results

    return compiled(run)


def side_by_side(devices: Sequence[harness.Device], parts: Sequence[Part]) -> Part:
    """Each part on a device of its own; as a ``tf.function``."""
    import tensorflow as tf

    def run() -> Any:
        results = []
        for device, part in zip(devices, parts, strict=True):
            with tf.device(device.name):
                results.append(part())
        return results

    return compiled(run)


def compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` as a ``tf.function``."""
    import tensorflow as tf

    function: Callable[..., Any] = tf.function(fn)
    return function


def held_on(device: harness.Device, value: Any) -> Any:
    """A variable on this device: what a benchmark works on is where it is needed before anything is measured."""
    import tensorflow as tf

    with tf.device(device.name):
        return tf.Variable(value)
