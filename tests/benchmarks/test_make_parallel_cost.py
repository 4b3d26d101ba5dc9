"""What ``make_parallel`` costs beside a split, one call for each device and a concat, written by hand.

Two dense layers of 512 units on 256 rows: a call of a few milliseconds on one core. The gradients are those of a tape
around the whole. By hand its backward ops all run on the first device; ``make_parallel`` keeps them on their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import harness

pytest_plugins = ["figures"]

_UNITS, _ROWS = 512, 256
#: From the goals of the project.
_GRAPH_TARGET, _EAGER_TARGET = 1.05, 1.10
_ABSURD = 3.0


class _Model:
    """Two dense layers, each ``tanh(x @ w)``, over all ``devices``, in the two ways."""

    def __init__(self, devices: harness.Devices) -> None:
        import tensorflow as tf

        tf.random.set_seed(0)
        self.devices = devices
        self.weights = [tf.Variable(tf.random.normal([_UNITS, _UNITS]) * _UNITS**-0.5) for _ in range(2)]
        self.x = tf.random.normal([_ROWS, _UNITS])
        self.split_by_us = harness.make_parallel(self.on_one, devices)

    def on_one(self, x: Any) -> Any:
        import tensorflow as tf

        for weights in self.weights:
            x = tf.tanh(tf.matmul(x, weights))
        return x

    def with_harness(self, x: Any) -> Any:
        return self.split_by_us(x=x)

    def by_hand(self, x: Any) -> Any:
        """Works for a batch of unknown size too, as ``make_parallel`` does."""
        import tensorflow as tf

        count = len(self.devices)
        sizes: Any = count
        if x.shape[0] is None:
            sizes = (tf.shape(x)[0] + tf.range(count - 1, -1, -1)) // count
        results = []
        for device, shard in zip(self.devices, tf.split(x, sizes, num=count), strict=True):
            with tf.device(device.name):
                results.append(self.on_one(shard))
        with tf.device(self.devices.host):
            return tf.concat(results, axis=0)

    def gradients_of(self, fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
        import tensorflow as tf

        def gradients(x: Any) -> Any:
            with tf.GradientTape() as tape:
                y = fn(x)
            return tape.gradient(y, self.weights)

        return gradients


@pytest.mark.parametrize("part", ["forward", "gradients"])
@pytest.mark.parametrize("mode", ["eager", "tf.function", "tf.function, any batch"])
def test_make_parallel_against_a_split_by_hand(
    compare: Callable[..., object], devices: harness.Devices, mode: str, part: str
) -> None:
    import tensorflow as tf

    model = _Model(devices)

    def ready(fn: Callable[[Any], Any]) -> Callable[[int], object]:
        if part == "gradients":
            fn = model.gradients_of(fn)
        if mode != "eager":
            rows = _ROWS if mode == "tf.function" else None
            fn = tf.function(fn, input_signature=[tf.TensorSpec([rows, _UNITS])])
        # The results are waited for: an eager call may return before its last op is done.
        return lambda _: tf.nest.map_structure(lambda result: result.numpy(), fn(model.x))

    compare(
        f"make_parallel / by hand: {mode}, {part}",
        ready(model.with_harness),
        ready(model.by_hand),
        target=_EAGER_TARGET if mode == "eager" else _GRAPH_TARGET,
        absurd=_ABSURD,
        pairs=200 if part == "forward" else 100,
    )
