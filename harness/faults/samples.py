"""Data and small models that the planted programs share. All random numbers are fixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.devices.device import Devices


def sample(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    """Normally distributed numbers, float32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def integers(high: int, *shape: int, seed: int = 0) -> NDArray[np.int64]:
    """Numbers from 0 to ``high - 1``, int64."""
    return np.random.default_rng(seed).integers(0, high, size=shape)


def shares(rows: int, count: int) -> list[int]:
    """Sizes of ``count`` shards of ``rows`` rows, no two of which differ by more than one."""
    return [rows // count + (index < rows % count) for index in range(count)]


def uneven(count: int) -> int:
    """A number of rows that ``count`` devices cannot share equally, each with two at least."""
    return 3 * count - 1


def per_shard(devices: Devices, x: Any, sizes: Sequence[int], fn: Callable[[Any], Any]) -> list[Any]:
    """``fn`` of each shard of ``x``, split along its first axis into parts of ``sizes`` rows, each on its device."""
    import tensorflow as tf

    results = []
    for device, part in zip(devices, tf.split(x, sizes), strict=True):
        with tf.device(device.name):
            results.append(fn(part))
    return results


def dense(seed: int = 1) -> tuple[Callable[[Any], Any], list[Any]]:
    """A dense layer with tanh, from 3 to 5 features, and its variables: float32 [3, 5] and [5]."""
    import tensorflow as tf

    weights = tf.Variable(sample(3, 5, seed=seed), name="weights")
    bias = tf.Variable(sample(5, seed=seed + 1), name="bias")

    def model(x: Any) -> Any:
        return tf.tanh(tf.matmul(x, weights) + bias)

    return model, [weights, bias]


def losses(seed: int = 1) -> tuple[Callable[[Any], Any], list[Any]]:
    """A loss for each row of ``x`` float32 [n, 3], as [n], and its variables."""
    import tensorflow as tf

    model, variables = dense(seed)

    def per_row(x: Any) -> Any:
        return tf.reduce_sum(tf.square(model(x)), axis=1)

    return per_row, variables
